"""How much of the reply has left the speaker: what the client reports, so that the server knows what was heard.

`PlayoutClock` is a rule and takes time as an argument; a `Player` is whatever makes the sound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.audio_codecs.mp3_frames import FrameReader
from gateway.events import AudioFrame, AudioOut

OPUS_FRAME_MS = 20.0
REPORT_EVERY_S = 0.25  # the protocol's interval


def length_ms(data: bytes, audio_out: AudioOut) -> float:
    """How long a frame sounds: pcm16 and G.711 by its size, opus always 20 ms, MP3 by its own headers."""
    if audio_out.codec == "pcm16":
        return len(data) * 500 / audio_out.rate_hz
    if audio_out.codec in ("g711u", "g711a"):
        return len(data) * 1000 / audio_out.rate_hz
    if audio_out.codec == "mp3":
        return sum(1000 * frame.n_samples / frame.sample_rate_hz for frame in FrameReader().feed(data))
    return OPUS_FRAME_MS


class PlayoutClock:
    """Media time played of one turn by a speaker that starts with the first frame and waits while it has nothing."""

    def __init__(self) -> None:
        self._total_ms = 0.0
        self._played_ms = 0.0
        self._since_s = 0.0
        self._is_paused = False

    @property
    def total_ms(self) -> float:
        """Media time received."""
        return self._total_ms

    def add(self, n_ms: float, now_s: float) -> None:
        """A frame of `n_ms` arrived."""
        self._played_ms, self._since_s = self.played_ms(now_s), now_s
        self._total_ms += n_ms

    def starved_ms(self, now_s: float) -> float:
        """How long the speaker has had nothing to play; 0 while it plays."""
        return 0.0 if self._is_paused else max(0.0, (now_s - self._since_s) * 1000 - (self._total_ms - self._played_ms))

    def pause(self, now_s: float) -> None:
        """Hold the speaker; what is received meanwhile waits."""
        self._played_ms, self._is_paused = self.played_ms(now_s), True

    def resume(self, now_s: float) -> None:
        """Go on where it was held."""
        self._played_ms, self._since_s, self._is_paused = self.played_ms(now_s), now_s, False

    def played_ms(self, now_s: float) -> float:
        """Media time that has left the speaker."""
        if self._is_paused:
            return self._played_ms
        return min(self._total_ms, self._played_ms + (now_s - self._since_s) * 1000)


class Player(Protocol):
    """Makes the sound and knows how far it is. All methods return at once."""

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        """Queue a frame of `n_ms`."""

    def played_ms(self, turn: int) -> float:
        """Media time of `turn` that has left the speaker."""

    def pause(self, turn: int) -> None:
        """Hold the sound where it is: the user may be interrupting."""

    def resume(self, turn: int) -> None:
        """Go on with it."""

    def stop(self, turn: int) -> None:
        """Throw away what has not been played; `played_ms` stays where it is."""


class SimulatedPlayer:
    """A silent speaker that keeps real time; `clock` is the running loop's."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turns: dict[int, PlayoutClock] = {}
        self._stopped_ms: dict[int, float] = {}

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        if frame.turn in self._stopped_ms:
            return
        if frame.turn not in self._turns:
            self._turns = {frame.turn: PlayoutClock()}
            self._stopped_ms.clear()
        self._turns[frame.turn].add(n_ms, self._clock())

    def played_ms(self, turn: int) -> float:
        if turn in self._stopped_ms:
            return self._stopped_ms[turn]
        return self._turns[turn].played_ms(self._clock()) if turn in self._turns else 0.0

    def pause(self, turn: int) -> None:
        if turn in self._turns:
            self._turns[turn].pause(self._clock())

    def resume(self, turn: int) -> None:
        if turn in self._turns:
            self._turns[turn].resume(self._clock())

    def stop(self, turn: int) -> None:
        self._stopped_ms = {turn: self.played_ms(turn)}
