"""Segments to speech: one segment is made ahead of the one that is sent, and frames leave no earlier than the listener needs.

One speaker per turn. `synthesize` and `play` are the two tasks; the turn's task group owns them. Segments on the way are bounded to
`AHEAD`; the queue of decided segments is bounded by the turn's token limit. A segment that no voice can speak, or on which the voice
failed, is told (`segment.done`) and the next one goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from engine.api import EngineError, EngineStalled, SpeechChunk, Style, Synthesis, Synthesizer, WordTiming
from gateway.errors import SlowReader
from gateway.events import AudioFrame, ErrorRaised, SegmentAudio, SegmentDone, SegmentStatus, ServerEvent, Word
from gateway.metrics import Metrics, TurnClock
from gateway.pacing import PlayoutClock, frame_ms
from gateway.speech.captions import Heard
from gateway.speech.stream import SpokenSegment

AHEAD = 2  # segments on the way: the one being sent, and the next one being made
_MS_PER_CHARACTER = 65.0  # until this turn's own speech has shown its rate (about 15 characters a second)

log = logging.getLogger("stretto.speaker")


class SpeakerSettings(Struct, frozen=True, kw_only=True):
    """How one turn is spoken. `lead_ms`: audio ahead of the listener, at most."""

    turn: int
    voice: str
    sample_rate_hz: int
    lead_ms: int
    first_chunk_s: float
    stall_s: float
    debug_stamps: bool


class Track:
    """One segment on its way to the listener: its audio as it is made, and where it stands in the turn's audio."""

    def __init__(self, segment: SpokenSegment, decided_at: float) -> None:
        self.segment = segment
        self.decided_at = decided_at
        self.voice = ""
        self.status: SegmentStatus = "ok"
        self.words: list[WordTiming] = []
        self.start_ms: float | None = None
        self.sent_ms = 0.0
        self.is_made = False
        self.is_sent = False
        self.at_ms = 0.0
        self._chunks: deque[bytes] = deque()
        self._n_bytes = 0
        self.made_bytes = 0
        self._grown = asyncio.Event()

    def add(self, chunk: SpeechChunk, at_ms: float) -> None:
        """Take audio from the voice."""
        self._chunks.append(chunk.pcm)
        self._n_bytes += len(chunk.pcm)
        self.made_bytes += len(chunk.pcm)
        self.words.extend(chunk.words)
        self.at_ms = at_ms
        self._grown.set()

    def close(self, status: SegmentStatus) -> None:
        """No more audio comes."""
        self.status = status
        self.is_made = True
        self._grown.set()

    async def take(self, n_bytes: int) -> bytes:
        """The next `n_bytes`, fewer only at the end of the segment, empty after it; waits for the voice."""
        while self._n_bytes < n_bytes and not self.is_made:
            self._grown.clear()
            await self._grown.wait()
        parts: list[bytes] = []
        wanted = min(n_bytes, self._n_bytes)
        while wanted > 0:
            chunk = self._chunks.popleft()
            if len(chunk) > wanted:
                self._chunks.appendleft(chunk[wanted:])
                chunk = chunk[:wanted]
            parts.append(chunk)
            wanted -= len(chunk)
            self._n_bytes -= len(chunk)
        return b"".join(parts)


class Speaker:
    """Speaks one turn. Time in seconds of `now()`; audio is mono s16le at `settings.sample_rate_hz`.

    `put` sends a frame; nothing is played before `may_play` returns.
    """

    def __init__(
        self,
        settings: SpeakerSettings,
        voices: Synthesizer,
        put: Callable[[ServerEvent], None],
        may_play: Callable[[], Awaitable[None]],
        metrics: Metrics,
        turn_clock: TurnClock,
        now: Callable[[], float],
        on_first_audio: Callable[[], None],
    ) -> None:
        self.clock = PlayoutClock()
        self.tracks: list[Track] = []
        self._settings = settings
        self._voices = voices
        self._put = put
        self._may_play = may_play
        self._metrics = metrics
        self._turn_clock = turn_clock
        self._now = now
        self._on_first_audio = on_first_audio
        self._bytes_per_ms = settings.sample_rate_hz * 2 / 1000
        self._sent_bytes = 0
        self._decided: asyncio.Queue[Track | None] = asyncio.Queue()
        self._made: asyncio.Queue[Track | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(AHEAD)
        self._moved = asyncio.Event()

    def say(self, segment: SpokenSegment) -> None:
        """Queue a decided segment."""
        track = Track(segment, self._now())
        self.tracks.append(track)
        self._decided.put_nowait(track)

    def finish(self) -> None:
        """No more segments come."""
        self._decided.put_nowait(None)

    def playout_moved(self) -> None:
        """The client reported playout or goes on after a pause: look at the clock again."""
        self._moved.set()

    async def synthesize(self) -> None:
        """Make the audio of one segment after the other, `AHEAD` at most on the way. A cancel frees the voice."""
        while (track := await self._decided.get()) is not None:
            await self._room.acquire()
            self._made.put_nowait(track)
            try:
                await self._make(track)
            except EngineError as error:
                self._tell_failure(track, error)
        self._made.put_nowait(None)

    async def play(self) -> None:
        """Send each segment's audio when it is due. Raises `SlowReader` when the client's player stands still for too long."""
        await self._may_play()
        while (track := await self._made.get()) is not None:
            await self._play(track)
            self._room.release()

    async def played_out(self, grace_s: float) -> None:
        """Wait until the listener has heard everything; a client that stops reporting is waited for `grace_s` longer."""
        deadline = self._now() + (self.clock.sent_ms - self.clock.played_ms(self._now())) / 1000 + grace_s
        while not self.clock.is_played_out(self._now()) and self._now() < deadline:
            if self.clock.is_paused:
                paused_at = self._now()
                await self._wait(grace_s)
                deadline += self._now() - paused_at
                continue
            left_s = (self.clock.sent_ms - self.clock.played_ms(self._now())) / 1000
            await self._wait(min(max(left_s, 0.001), deadline - self._now()))

    async def settled(self, wait_s: float) -> None:
        """Wait for the client's last word on what was heard (`playout{final}`), `wait_s` at most."""
        deadline = self._now() + wait_s
        while self.clock.sent_ms > 0 and not self.clock.final and self._now() < deadline:
            await self._wait(deadline - self._now())

    def heard(self, cut_ms: float | None = None) -> list[tuple[Track, Heard]]:
        """The segments heard so far (or up to `cut_ms`), each with how much of its written text; the last one may be cut."""
        played_ms = self.clock.played_ms(self._now()) if cut_ms is None else cut_ms
        found: list[tuple[Track, Heard]] = []
        if self.clock.sent_ms == 0 or played_ms <= 0:
            return found
        for track in self.tracks:
            if track.start_ms is None or played_ms < track.start_ms:
                break
            into_ms = played_ms - track.start_ms
            if track.is_sent and into_ms >= track.sent_ms:
                found.append((track, Heard(track.segment.text, len(track.segment.text))))
            else:
                words = [(w.start_ms, w.end_ms, w.start, w.end) for w in track.words] or None
                found.append((track, track.segment.heard(into_ms, self._length_ms(track), words)))
        return found

    async def _make(self, track: Track) -> None:
        voice, text = self._settings.voice, track.segment.spoken.text
        if not text or not self._voices.can_speak(text, voice):
            track.close("no_voice" if text else "ok")
            return
        synthesis = Synthesis(
            request_id=f"{id(self):x}-{self._settings.turn}-{track.segment.index}",
            text=text,
            voice=voice,
            language=track.segment.language,
            style=Style(emotion=track.segment.emotion),
            sample_rate_hz=self._settings.sample_rate_hz,
        )
        track.voice = voice
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._settings.first_chunk_s) as deadline, aclosing(self._voices.synthesize(synthesis)) as chunks:
                async for chunk in chunks:
                    if not track.made_bytes:
                        self._metrics.tts_first_chunk.labels(self._voices.name).observe(self._now() - track.decided_at)
                    track.add(chunk, self._now() * 1000)
                    deadline.reschedule(loop.time() + self._settings.first_chunk_s)
        except TimeoutError as error:
            raise EngineStalled(f"no audio for {self._settings.first_chunk_s} s") from error
        track.close("ok" if track.made_bytes else "failed")

    def _tell_failure(self, track: Track, error: EngineError) -> None:
        track.close("no_voice" if error.kind == "no_voice" else "failed")
        self._metrics.tts_errors.labels(self._voices.name, error.kind).inc()
        log.warning("voice failed", extra={"turn_id": self._settings.turn, "kind": error.kind, "detail": str(error)})
        if error.kind != "no_voice":
            message = f"The voice failed on segment {track.segment.index}; its text was sent, the next segment goes on."
            self._put(ErrorRaised(code="tts_failed", message=message, retryable=True, turn=self._settings.turn))

    async def _play(self, track: Track) -> None:
        settings = self._settings
        n_frames = 0
        while data := await track.take(int(frame_ms(n_frames) * self._bytes_per_ms) // 2 * 2):
            await self._due()
            now = self._now()
            if n_frames == 0:
                track.start_ms = self.clock.sent_ms
                self._announce(track)
            length_ms = len(data) / self._bytes_per_ms
            stamp = track.at_ms if settings.debug_stamps else None
            pts_ms = round(self._sent_bytes / self._bytes_per_ms, 3)
            self._put(AudioFrame(turn=settings.turn, index=track.segment.index, pts_ms=pts_ms, data=data, at_ms=stamp))
            self._sent_bytes += len(data)
            self.clock.sent(length_ms, now)
            track.sent_ms += length_ms
            if self._turn_clock.first_audio_s is None:
                self._turn_clock.audio(now)
                self._on_first_audio()
            n_frames += 1
        if track.start_ms is None:
            track.start_ms = self.clock.sent_ms
        track.is_sent = True
        done = SegmentDone(turn=settings.turn, index=track.segment.index, audio_ms=round(track.sent_ms), status=track.status)
        self._put(done)

    def _announce(self, track: Track) -> None:
        words = tuple(Word(start_ms=w.start_ms, end_ms=w.end_ms, start=w.start, end=w.end) for w in track.words) or None
        spoken = track.segment.spoken.text
        self._put(SegmentAudio(turn=self._settings.turn, index=track.segment.index, voice=track.voice, spoken=spoken, words=words))

    async def _due(self) -> None:
        waits_since, heard_ms = self._now(), self.clock.played_ms(self._now())
        while (wait_s := self.clock.due_in_s(self._settings.lead_ms, self._now())) > 0:
            await self._wait(wait_s)
            now = self._now()
            if self.clock.played_ms(now) > heard_ms or self.clock.is_paused:
                waits_since, heard_ms = now, self.clock.played_ms(now)
            elif now - waits_since > self._settings.stall_s:
                raise SlowReader(f"The player stands at {heard_ms:.0f} ms for {self._settings.stall_s:.0f} s; expected playout reports.")

    async def _wait(self, seconds: float) -> None:
        """Wait for the clock to move, `seconds` at most."""
        self._moved.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._moved.wait()
        except TimeoutError:
            pass

    def _length_ms(self, track: Track) -> float:
        """Length of the segment's audio: known when made, else judged by its text and this turn's rate of speech."""
        made_ms = track.made_bytes / self._bytes_per_ms
        if track.is_made:
            return made_ms
        done = [other for other in self.tracks if other.is_made and other.made_bytes]
        n_characters = sum(len(other.segment.spoken.text) for other in done)
        rate = sum(other.made_bytes for other in done) / self._bytes_per_ms / n_characters if n_characters else _MS_PER_CHARACTER
        return max(made_ms, rate * len(track.segment.spoken.text))
