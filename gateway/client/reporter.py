"""Tells the server how much was heard: at the first sample, every 250 ms, when the turn is interrupted, and at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.client.playout import REPORT_EVERY_S, Player, length_ms
from gateway.events import AudioFrame, AudioOut, ClientEvent, ReportPlayout

ROUNDING_MS = 0.5  # sums of frame lengths are floats


class _Track(Struct):
    """A turn that sounds."""

    received_ms: float = 0.0
    is_all_sent: bool = False
    is_over: bool = False
    is_paused: bool = False
    due_s: float = 0.0


class PlayoutReporter:
    """Feeds the player and reports for it. `run` is the task; the `on_` methods never wait."""

    def __init__(self, player: Player, send: Callable[[ClientEvent], Awaitable[None]], clock: Callable[[], float]) -> None:
        self._player = player
        self._send = send
        self._clock = clock
        self._tracks: dict[int, _Track] = {}
        self._changed = asyncio.Event()
        self.audio_out = AudioOut()
        self._formats: dict[int, AudioOut] = {}  # of turns that come in another one

    def on_started(self, turn: int, audio_out: AudioOut | None) -> None:
        """A turn begins, and this is what its sound comes as."""
        if audio_out is not None and audio_out != self.audio_out:
            self._formats[turn] = audio_out

    def on_audio(self, frame: AudioFrame) -> None:
        n_ms = length_ms(frame.data, self._formats.get(frame.turn, self.audio_out))
        track = self._tracks.get(frame.turn)
        if track is None:
            track = self._tracks[frame.turn] = _Track(due_s=self._clock())
            self._changed.set()
        track.received_ms += n_ms
        self._player.play(frame, n_ms)

    def on_all_sent(self, turn: int) -> None:
        if turn in self._tracks:
            self._tracks[turn].is_all_sent = True
            self._changed.set()

    def on_pause(self, turn: int) -> None:
        """Reported at once: the server keeps to what was heard."""
        if turn in self._tracks:
            self._player.pause(turn)
            self._tracks[turn].is_paused = True
            self._tracks[turn].due_s = self._clock()
            self._changed.set()

    def on_resume(self, turn: int) -> None:
        if turn in self._tracks:
            self._player.resume(turn)
            self._tracks[turn].is_paused = False
            self._changed.set()

    def on_over(self, turn: int) -> None:
        self._formats.pop(turn, None)
        if turn in self._tracks:
            self._player.stop(turn)
            self._tracks[turn].is_over = True
            self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            for turn, track in list(self._tracks.items()):
                await self._report(turn, track)
            due_s = min((track.due_s for track in self._tracks.values()), default=None)
            try:
                async with asyncio.timeout(None if due_s is None else max(0.001, due_s - self._clock())):
                    await self._changed.wait()
                self._changed.clear()
            except TimeoutError:
                continue

    async def _report(self, turn: int, track: _Track) -> None:
        played_ms, now_s = self._player.played_ms(turn), self._clock()
        left_ms = track.received_ms - played_ms
        is_final = track.is_over or (track.is_all_sent and left_ms < ROUNDING_MS)
        if is_final:
            del self._tracks[turn]
        elif now_s < track.due_s:
            if track.is_all_sent and not track.is_paused:
                track.due_s = min(track.due_s, now_s + left_ms / 1000)
            return
        track.due_s = now_s + min(REPORT_EVERY_S, left_ms / 1000 if track.is_all_sent and not track.is_paused else REPORT_EVERY_S)
        await self._send(ReportPlayout(turn=turn, played_ms=played_ms, final=is_final))
