"""Segments to speech: one segment is made ahead of the one that is sent, and frames leave no earlier than the listener needs.

One speaker per turn. `synthesize` and `play` are the two tasks; the turn's task group owns them. Segments on the way are bounded by what
`VoicePace` says of their voice; the queue of decided segments by the turn's token limit. A segment that no voice can speak, or on which
the voice failed, is told (`segment.done`) and the next one goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from msgspec import Struct

from engine.api import EngineError, EngineStalled, Expectant, Style, Synthesis, Synthesizer
from gateway.errors import SlowReader
from gateway.events import AudioFrame, AudioOut, ErrorRaised, SegmentAudio, SegmentDone, ServerEvent, Word
from gateway.metrics import Metrics, TurnClock
from gateway.pacing import PlayoutClock, put_off
from gateway.speaker.bell import Bell
from gateway.speaker.framing import Encoding, Sound, framer
from gateway.speaker.pace import VoicePace
from gateway.speaker.track import SegmentRecord, Track
from gateway.speech.captions import Heard
from gateway.speech.stream import SpokenSegment
from gateway.voice_choice import VoiceChoice

_ON_ITS_WAY_S = 0.005  # a frame is put together and sent in less
_MS_PER_CHARACTER = 65.0  # until this turn's own speech has shown its rate (about 15 characters a second)

log = logging.getLogger("stretto.speaker")


class SpeakerSettings(Struct, frozen=True, kw_only=True):
    """How one turn is spoken: by `voice`, while the text is in its language. `lead_ms`: audio ahead of the listener, at most.

    `speed`: factor on the voice's own rate. `is_marked`: its sound is told to be generated.
    """

    turn: int
    voice: str
    language: str
    audio_out: AudioOut
    speed: float
    lead_ms: int
    first_chunk_s: float
    stall_s: float
    debug_stamps: bool
    is_marked: bool = False


class Speaker:
    """Speaks one turn. Time in seconds of `now()`; audio leaves as `settings.audio_out` says.

    `put` sends a frame; nothing is played before `may_play` returns. `pace` and `encoding` are the process's.
    """

    def __init__(
        self,
        settings: SpeakerSettings,
        voices: Synthesizer,
        pace: VoicePace,
        encoding: Encoding | None,
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
        self._pace = pace
        self._put = put
        self._may_play = may_play
        self._metrics = metrics
        self._turn_clock = turn_clock
        self._now = now
        self._on_first_audio = on_first_audio
        self._framer = framer(settings.audio_out, encoding, self._lasts_s)
        self._choice = VoiceChoice(voices.voices(), settings.voice, settings.language)
        self._engines = {voice.id: voice.engine for voice in voices.voices()}
        self._bytes_per_ms = settings.audio_out.rate_hz * 2 / 1000
        self._decided: asyncio.Queue[Track | None] = asyncio.Queue()
        self._made: asyncio.Queue[Track | None] = asyncio.Queue()
        self._n_making = self._n_on_the_way = 0
        self._freed = asyncio.Event()
        self._moved = Bell()
        self._expect(settings.voice)

    def say(self, segment: SpokenSegment) -> None:
        """Queue a decided segment."""
        track = Track(segment, self._choice.choose(segment.spoken.text), self._now())
        if self._decided.empty() or self.tracks[-1].choice != track.choice:  # the others get ready while this one is spoken
            self._expect(track.choice.voice)
        self.tracks.append(track)
        self._decided.put_nowait(track)

    def finish(self) -> None:
        """No more segments come."""
        self._decided.put_nowait(None)

    def let_go(self) -> None:
        """The turn is over: its audio is not needed any more, though its record is kept with the conversation."""
        for track in self.tracks:
            track.let_go()

    def playout_moved(self) -> None:
        """The client reported playout or goes on after a pause: look at the clock again."""
        self._moved.ring()

    async def synthesize(self) -> None:
        """Make the audio of one segment after the other, no further ahead than their voices need. A cancel frees the voices."""
        async with asyncio.TaskGroup() as makers:
            while (track := await self._decided.get()) is not None:
                await self._place_for(track)
                self._made.put_nowait(track)
                self._n_making += 1
                self._n_on_the_way += 1
                makers.create_task(self._make_or_tell(track), name=f"turn {self._settings.turn} segment {track.segment.index}")
            self._made.put_nowait(None)

    async def play(self) -> None:
        """Send each segment's audio when it is due. Raises `SlowReader` when the client's player stands still for too long."""
        await self._may_play()
        while (track := await self._made.get()) is not None:
            await self._play(track)
            self._n_on_the_way -= 1
            self._freed.set()

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
                heard_ms = max(0.0, into_ms - self._framer.delay_ms)
                found.append((track, track.segment.heard(heard_ms, self._length_ms(track), words)))
        return found

    def records(self) -> tuple[SegmentRecord, ...]:
        """The ways of all segments so far."""
        return tuple(track.record() for track in self.tracks)

    def _expect(self, voice: str) -> None:
        """A text for this voice will follow; some can get ready for it."""
        able: object = self._voices
        if isinstance(able, Expectant):
            able.expect(voice)

    async def _place_for(self, track: Track) -> None:
        """Wait until the voice may begin with this segment."""
        voice = track.choice.voice
        while self._n_making >= self._pace.at_once(voice) or self._n_on_the_way >= self._pace.on_the_way(voice):
            self._freed.clear()
            await self._freed.wait()

    async def _make_or_tell(self, track: Track) -> None:
        began, n_beside = self._now(), self._n_making
        try:
            await self._make(track)
            alone = max(n_beside, self._n_making) == 1
            self._pace.learn(track.choice.voice, self._now() - began, track.made_bytes / self._bytes_per_ms / 1000, alone=alone)
        except EngineError as error:
            self._tell_failure(track, error)
        finally:
            self._n_making -= 1
            self._freed.set()

    async def _make(self, track: Track) -> None:
        settings, text = self._settings, track.segment.spoken.text
        voice = next((each for each in (track.choice.voice, settings.voice) if text and self._voices.can_speak(text, each)), None)
        if voice is None:
            track.close("no_voice" if text else "ok")
            return
        synthesis = Synthesis(
            request_id=f"{id(self):x}-{settings.turn}-{track.segment.index}",
            text=text,
            voice=voice,
            language=track.choice.language,
            style=Style(emotion=track.segment.emotion, rate=settings.speed),
            sample_rate_hz=settings.audio_out.rate_hz,
            encoding="mp3" if self._framer.wants_mp3 else "pcm16",
        )
        loop, asked_at = asyncio.get_running_loop(), self._now()
        track.asked_s = asked_at
        try:
            async with asyncio.timeout(settings.first_chunk_s) as deadline, aclosing(self._voices.synthesize(synthesis)) as chunks:
                async for chunk in chunks:
                    if chunk.pcm and not track.made_bytes:
                        track.sounded_s = self._now()
                        engine = self._engine_of(chunk.voice or voice)
                        self._metrics.tts_first_chunk.labels(engine).observe(track.sounded_s - asked_at)
                    track.add(chunk, self._now() * 1000)
                    if (later := put_off(deadline.when(), loop.time(), settings.first_chunk_s)) is not None:
                        deadline.reschedule(later)
        except TimeoutError as error:
            raise EngineStalled(f"no audio for {settings.first_chunk_s} s") from error
        track.made_s = self._now()
        track.close("ok" if track.made_bytes else "failed")

    def _engine_of(self, voice: str) -> str:
        """A closed label: the engines there are."""
        return self._engines.get(voice, self._voices.name)

    def _tell_failure(self, track: Track, error: EngineError) -> None:
        track.close("no_voice" if error.kind == "no_voice" else "failed")
        self._metrics.tts_errors.labels(self._engine_of(track.choice.voice), error.kind).inc()
        log.warning("voice failed", extra={"turn_id": self._settings.turn, "kind": error.kind, "detail": str(error)})
        if error.kind != "no_voice":
            message = f"The voice failed on segment {track.segment.index}; its text was sent, the next segment goes on."
            self._put(ErrorRaised(code="tts_failed", message=message, retryable=True, turn=self._settings.turn))

    async def _play(self, track: Track) -> None:
        announced = ""
        await self._hold(track)
        async with aclosing(self._framer.frames(track)) as sounds:
            async for sound in sounds:
                voice = track.voice
                await self._due()
                if track.start_ms is None:
                    track.start_ms = self.clock.sent_ms
                if voice != announced:
                    self._announce(track, voice)
                    announced = voice
                self._send(track, sound)
        if track.start_ms is None:
            track.start_ms = self.clock.sent_ms
        track.is_sent = True
        track.sent_s = self._now()
        done = SegmentDone(turn=self._settings.turn, index=track.segment.index, audio_ms=round(track.sent_ms), status=track.status)
        self._put(done)

    async def _hold(self, track: Track) -> None:
        """A voice slower than real time first makes what the listener would run short of."""
        made_ms, ahead_ms = track.made_bytes / self._bytes_per_ms, self.clock.sent_ms - self.clock.played_ms(self._now())
        hold_ms = self._pace.hold_ms(track.choice.voice, self._length_ms(track), made_ms, ahead_ms)
        if hold_ms > 0:
            await track.made(hold_ms * self._bytes_per_ms)

    def _lasts_s(self) -> float:
        """Seconds until the listener has heard all that was sent, less what a frame needs on its way."""
        return max(0.0, (self.clock.sent_ms - self.clock.played_ms(self._now())) / 1000 - _ON_ITS_WAY_S)

    def _send(self, track: Track, sound: Sound) -> None:
        settings, now = self._settings, self._now()
        stamp = track.at_ms if settings.debug_stamps else None
        pts_ms = round(self.clock.sent_ms, 3)
        self._put(AudioFrame(turn=settings.turn, index=track.segment.index, pts_ms=pts_ms, data=sound.data, at_ms=stamp))
        self.clock.sent(sound.length_ms, now)
        track.sent_ms += sound.length_ms
        if self._turn_clock.first_audio_s is None:
            self._turn_clock.audio(now)
            self._on_first_audio()

    def _announce(self, track: Track, voice: str) -> None:
        words = tuple(Word(start_ms=w.start_ms, end_ms=w.end_ms, start=w.start, end=w.end) for w in track.words) or None
        spoken = track.segment.spoken.text
        mark = self._settings.is_marked or None
        self._put(
            SegmentAudio(turn=self._settings.turn, index=track.segment.index, voice=voice, spoken=spoken, words=words, generated=mark)
        )

    async def _due(self) -> None:
        waits_since = self._now()
        if (wait_s := self.clock.due_in_s(self._settings.lead_ms, waits_since)) <= 0:
            return
        heard_ms = self.clock.played_ms(waits_since)
        while wait_s > 0:
            await self._wait(wait_s)
            now = self._now()
            if self.clock.played_ms(now) > heard_ms or self.clock.is_paused:
                waits_since, heard_ms = now, self.clock.played_ms(now)
            elif now - waits_since > self._settings.stall_s:
                raise SlowReader(f"The player stands at {heard_ms:.0f} ms for {self._settings.stall_s:.0f} s; expected playout reports.")
            wait_s = self.clock.due_in_s(self._settings.lead_ms, now)

    async def _wait(self, seconds: float) -> None:
        """Wait for the clock to move, `seconds` at most."""
        await self._moved.wait(seconds)

    def _length_ms(self, track: Track) -> float:
        """Length of the segment's audio: known when made, else judged by its text and this turn's rate of speech."""
        made_ms = track.made_bytes / self._bytes_per_ms
        if track.is_made:
            return made_ms
        done = [other for other in self.tracks if other.is_made and other.made_bytes]
        n_characters = sum(len(other.segment.spoken.text) for other in done)
        guess = _MS_PER_CHARACTER / self._settings.speed
        rate = sum(other.made_bytes for other in done) / self._bytes_per_ms / n_characters if n_characters else guess
        return max(made_ms, rate * len(track.segment.spoken.text))
