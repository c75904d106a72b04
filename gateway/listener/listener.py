"""One microphone: audio in, voice and end-of-turn scores from the engines, texts from the recognizer; utterances out.

`take` never waits. Everything it keeps is bounded and drops the oldest: the tape (an utterance and a little more), the detector's
own backlog, the queue of finished utterances. What is decided is decided in `gateway/endpointing`; here are the tasks and the clocks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Literal

from msgspec import structs

from engine.api import Ears, EngineError, Transcript
from engine.audio_codecs.incoming import IncomingAudio
from gateway.config import Settings
from gateway.endpointing import (
    LONGEST_PREROLL_MS,
    LONGEST_SILENCE_MS,
    Decision,
    EndLikely,
    Endpointer,
    NoiseHeard,
    ScoreWanted,
    SpeechResumed,
    SpeechStarted,
    TurnEnded,
    adapted,
)
from gateway.errors import InputEmpty, SpeechLost
from gateway.events import AppendAudio, AudioIn, Endpointing
from gateway.listener.readings import Readings
from gateway.listener.tape import BYTES_PER_MS, MediaClock, Tape
from gateway.listener.utterance import OpenUtterance, Owner, Utterance
from gateway.metrics import ListeningMetrics

FRAME_MS = 32  # of the detector
TICK_S = 0.05  # how often an open utterance is looked after
STALL_S = 3.0  # a detector that says nothing for so long may not keep an utterance open
AHEAD_MS = 1500.0  # of unjudged audio in the detector; it drops what is more than 2 s
SLACK_MS = LONGEST_SILENCE_MS + 2000  # tape behind an utterance: the detector's backlog, and the pause that ends it
TAIL_MS = 300.0  # silence left behind an utterance; recognizers misread words cut at their last sound
PIECE_MS = 7000.0  # a speaker who goes on after a pause begins a piece of its own, where so much was said before it
SCORED_MS = 8000.0  # what the end-of-turn model hears
SHORTEST_MS = 100.0  # of a push-to-talk utterance
WAITING = 8  # finished utterances whose text is awaited

log = logging.getLogger("stretto.listener")


class Listener:
    """Use `run` as the task that owns its work; the rest is called by the session.

    Raises `EngineSetupError` for a codec whose library is missing.
    """

    def __init__(
        self,
        stream_id: str,
        audio_in: AudioIn,
        mode: Literal["auto", "push_to_talk"],
        settings: Settings,
        ears: Ears,
        metrics: ListeningMetrics,
        now: Callable[[], float],
        owner: Owner,
    ) -> None:
        self.language: str | None = None
        self._stream_id = stream_id
        self._audio_in = audio_in
        self._mode = mode
        self._endpointing, self._hearing = settings.endpointing, settings.hearing
        self._preroll_ms = settings.hearing.preroll_ms
        self._held_ms = min(settings.barge_in.partial_ms, settings.hearing.partial_ms)
        self._ears, self._metrics, self._now, self._owner = ears, metrics, now, owner
        self._incoming = IncomingAudio(audio_in.codec, audio_in.rate_hz)
        self._half = b""
        self._clock = MediaClock()
        self._tape = Tape(round(self._endpointing.longest_utterance_s * 1000) + LONGEST_PREROLL_MS + SLACK_MS)
        self._endpointer = Endpointer(self._endpointing)
        self._open: OpenUtterance | None = None
        self._opened = asyncio.Event()
        self._finished: asyncio.Queue[OpenUtterance] = asyncio.Queue(WAITING)
        self._n_utterances = self._n_awaited = 0
        self._is_muted = False
        self._heard_s = now()
        self._dropped_ms = 0
        self._fed_ms = self._heard_ms = 0.0  # what the detector was given, and has judged
        self._read_to_ms = 0.0
        self._readings: Readings

    async def run(self) -> None:
        """Listen until cancelled; then nothing of it is left in the engines."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._readings = Readings(self._stream_id, self._ears, self._hearing, self._metrics, tasks)
                tasks.create_task(self._hear(), name=f"{self._stream_id} hear")
                tasks.create_task(self._watch(), name=f"{self._stream_id} watch ears")
                tasks.create_task(self._finish(), name=f"{self._stream_id} final texts")
        finally:
            self._ears.detector.drop(self._stream_id)
            if self._open is not None:
                self._readings.cancel(self._open)

    @property
    def is_open(self) -> bool:
        """Whether somebody speaks now."""
        return self._open is not None

    def take(self, event: AppendAudio) -> None:
        """Audio from the client. Corrupt packets are counted and skipped."""
        data = self._whole_samples(event)
        if self._is_muted or not data:
            return
        try:
            pcm = self._incoming.feed(data)
        except EngineError as error:
            self._metrics.ear_errors.labels("codec", error.kind).inc()
            return
        if self._owner.is_deaf:
            pcm = bytes(len(pcm))
        silence_ms = self._clock.arrive(event.pts_ms, self._tape.end_ms)
        if silence_ms:
            self._feed(bytes(int(silence_ms) * BYTES_PER_MS))
        self._feed(pcm)
        self._clock.took(self._length_ms(data, pcm), self._tape.end_ms, self._now())
        if self._mode == "push_to_talk" and self._open is None:
            self._begin(self._tape.end_ms - len(pcm) / BYTES_PER_MS)

    def commit(self) -> None:
        """What was said so far is an utterance. Raises `InputEmpty`."""
        open_ = self._open
        if self._mode == "push_to_talk":
            if open_ is None or self._tape.end_ms - open_.from_ms < SHORTEST_MS:
                raise InputEmpty(f"Less than {SHORTEST_MS:.0f} ms of audio came before the commit; expected speech.")
            self._tell_started(open_, open_.from_ms)
            self._on_ended(open_, TurnEnded(self._tape.end_ms, 0.0, "forced"))
            return
        decisions = self._endpointer.force()
        if not decisions:
            raise InputEmpty("Nobody has spoken since the last utterance; expected speech before a commit.")
        self._act(decisions)

    def clear(self) -> None:
        """Throw away what was said and is not an utterance yet."""
        self._endpointer.reset()
        if self._open is not None:
            self._close("cleared")

    def listen_by(self, mode: Literal["auto", "push_to_talk"]) -> None:
        """Who ends an utterance from now on: we, or the client's commit. What was begun in the other way is thrown away."""
        if mode != self._mode:
            self.clear()
            self._mode = mode

    def endpoint_by(self, wish: Endpointing) -> None:
        """How it is decided from now on that somebody speaks and has finished. `wish`: as `endpointing.in_force` gives it."""
        self._endpointer.adapt(adapted(self._endpointing, wish))
        if wish.preroll_ms is not None:
            self._preroll_ms = wish.preroll_ms

    @property
    def now_ms(self) -> int:
        """How much the client has sent, on its own clock."""
        return self._clock.client_ms(self._tape.end_ms)

    def hear_as(self, audio_in: AudioIn) -> None:
        """The microphone's format from now on. Raises `EngineSetupError` for a codec whose library is missing."""
        if audio_in != self._audio_in:
            self._incoming, self._audio_in, self._half = IncomingAudio(audio_in.codec, audio_in.rate_hz), audio_in, b""

    @property
    def is_reading(self) -> bool:
        """Whether the text of a finished utterance is awaited."""
        return self._n_awaited > 0

    def mute(self, *, on: bool) -> None:
        """The microphone is off: what was said so far is all that will be said."""
        self._is_muted = on
        if on:
            self._act(self._endpointer.force())

    async def _hear(self) -> None:
        async with aclosing(self._ears.detector.frames(self._stream_id)) as frames:
            async for frame in frames:
                self._heard_s, self._heard_ms = self._now(), frame.pts_ms + FRAME_MS
                self._feed_detector()
                if self._mode == "push_to_talk":
                    continue  # the detector hears all the same, so that its clock is ours when the mode changes
                self._act(self._endpointer.hear(frame.pts_ms, FRAME_MS, frame.probability))
                if self._open is None:
                    self._tape.forget_before(frame.pts_ms - self._preroll_ms)
                else:
                    self._tape.forget_before(min(self._open.piece.from_ms, self._heard_ms - SCORED_MS))
                    self._read_along(self._open, self._endpointer.spoken_until_ms)

    async def _watch(self) -> None:
        """While somebody speaks: audio that fails to come is silence, and a detector that hangs does not keep us deaf."""
        while True:
            await self._opened.wait()
            while self._open is not None:
                await asyncio.sleep(TICK_S)
                if self._mode == "push_to_talk":
                    continue
                missing_ms = self._clock.missing_ms(self._hearing.gap_ms, self._now())
                if missing_ms >= 1:
                    self._feed(bytes(int(missing_ms) * BYTES_PER_MS))
                    self._clock.filled(int(missing_ms))
                if self._now() - self._heard_s > STALL_S:
                    log.warning("voice detector says nothing", extra={"session_id": self._stream_id, "waited_s": STALL_S})
                    self._act(self._endpointer.force())
            self._opened.clear()

    async def _finish(self) -> None:
        """Final texts, in the order in which the utterances ended."""
        while True:
            utterance = await self._finished.get()
            text = await self._readings.final(utterance, self.language)
            self._n_awaited -= 1
            if text is None:
                self._metrics.utterances.labels("failed").inc()
                lost = SpeechLost("What was said could not be understood in time; please say it again.")
                self._owner.on_nothing(utterance.number, "failed", lost)
                continue
            self._metrics.utterances.labels("text" if text[0] else "empty").inc()
            self._metrics.final_transcript.observe(self._now() - utterance.ended_s)
            read = Utterance(number=utterance.number, text=text[0], language=text[1], at_ms=utterance.at_ms, ended_s=utterance.ended_s)
            self._owner.on_utterance(structs.replace(read, is_whole=utterance.is_whole))

    def _whole_samples(self, event: AppendAudio) -> bytes:
        """Half a sample at the end waits for its other half in a stream without times; a frame with a time of its own loses it."""
        if self._audio_in.codec != "pcm16":
            return event.data
        data = self._half + event.data if event.pts_ms is None else event.data
        n_whole = len(data) // 2 * 2
        self._half = data[n_whole:] if event.pts_ms is None else b""
        return data[:n_whole]

    def _length_ms(self, data: bytes, pcm: bytes) -> float:
        """Media time of a client's audio; the resampler gives out a little less at first."""
        match self._audio_in.codec:
            case "pcm16":
                return len(data) / 2 * 1000 / self._audio_in.rate_hz
            case "g711u" | "g711a":
                return len(data) / 8
            case _:
                return len(pcm) / BYTES_PER_MS

    def _feed(self, pcm: bytes) -> None:
        needed_from_ms = self._fed_ms if self._open is None else min(self._fed_ms, self._open.piece.from_ms)
        lost_ms = self._tape.append(pcm, needed_from_ms=needed_from_ms)
        if lost_ms:
            self._metrics.audio_dropped.labels("too_long").inc(lost_ms / 1000)
        self._feed_detector()

    def _feed_detector(self) -> None:
        """Give the detector what it can take: a client that sends a recording at once is heard all the same, only faster."""
        begin_ms, end_ms = self._tape.begin_ms, self._tape.end_ms
        if self._fed_ms < begin_ms:  # forgotten before it was heard
            self._fed_ms = self._heard_ms = begin_ms
            self._ears.detector.reset(self._stream_id, int(begin_ms))
        until_ms = min(end_ms, self._heard_ms + AHEAD_MS)
        if until_ms <= self._fed_ms:
            return
        self._ears.detector.feed(self._stream_id, self._tape.cut(self._fed_ms, until_ms))
        self._fed_ms = until_ms
        dropped_ms = self._ears.detector.dropped_ms(self._stream_id)
        if dropped_ms > self._dropped_ms:
            self._metrics.audio_dropped.labels("behind").inc((dropped_ms - self._dropped_ms) / 1000)
        self._dropped_ms = dropped_ms

    def _act(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case SpeechStarted():
                    self._begin(decision.at_ms)
                    continue
                case _ if self._open is None:
                    continue
                case EndLikely():
                    self._on_likely(self._open, decision.at_ms)
                case ScoreWanted():
                    from_ms = max(self._open.from_ms, self._heard_ms - SCORED_MS)
                    self._readings.score(self._open, self._tape.cut(from_ms, self._heard_ms), self._on_score)
                case SpeechResumed():
                    self._on_resumed(self._open, decision.at_ms)
                case TurnEnded():
                    self._on_ended(self._open, decision)
                case NoiseHeard():
                    self._metrics.utterances.labels("noise").inc()
                    self._close("noise")

    def _begin(self, at_ms: float) -> None:
        self._n_utterances += 1
        from_ms = max(at_ms - self._preroll_ms, self._read_to_ms)  # no word is read twice
        self._open = OpenUtterance(self._n_utterances, from_ms)
        self._opened.set()
        self._heard_s = self._now()
        if self._mode == "auto":
            self._tell_started(self._open, at_ms)

    def _tell_started(self, utterance: OpenUtterance, at_ms: float) -> None:
        """In push-to-talk with the commit alone: until then nobody knows whether the button is held or the client streams all the time."""
        self._owner.on_speech_started(utterance.number, self._clock.client_ms(at_ms), self._clock.loop_s(at_ms, self._now()))

    def _read_along(self, utterance: OpenUtterance, spoken_until_ms: float) -> None:
        """Ask for a partial text when enough was said since the last one."""
        piece = utterance.piece
        is_first = piece.read_until_ms <= piece.from_ms
        wait_ms = self._held_ms if self._owner.awaits_words and not is_first else self._hearing.partial_ms
        is_due = spoken_until_ms - max(piece.read_until_ms, piece.from_ms) >= wait_ms
        if is_due and not piece.is_read and not utterance.is_paused:
            pcm, until_ms = self._tape.cut(piece.from_ms, self._heard_ms), self._heard_ms
            self._readings.read_partial(utterance, pcm, until_ms, self.language, self._on_partial)

    def _on_partial(self, utterance: OpenUtterance) -> None:
        if utterance is self._open:
            self._owner.on_text(utterance.number, utterance.text_with(utterance.piece.partial))

    def _on_likely(self, utterance: OpenUtterance, at_ms: float) -> None:
        utterance.likely_ended_s = self._clock.loop_s(at_ms, self._now())
        utterance.paused_ms = at_ms
        self._readings.begin_pause(utterance)
        piece = utterance.piece
        if piece.covers(at_ms):
            self._tell_likely(utterance, utterance.text_with(piece.partial))
        pcm = self._tape.cut(piece.from_ms, self._heard_ms)
        self._readings.read_closing(utterance, pcm, self.language, self._on_closing)

    def _on_resumed(self, utterance: OpenUtterance, at_ms: float) -> None:
        """It was a pause. Behind a long piece a new one begins: what was read before it is not read again with every further word."""
        piece = utterance.piece
        if utterance.paused_ms - piece.from_ms >= PIECE_MS:
            from_ms = max(utterance.paused_ms, at_ms - self._hearing.preroll_ms)
            utterance.begin_piece(from_ms, self._tape.cut(piece.from_ms, from_ms))
            self._readings.end_pause(utterance)
        else:
            self._readings.forget_pause(utterance)
        self._owner.on_speech_resumed(utterance.number)

    def _on_closing(self, utterance: OpenUtterance, read: Transcript) -> None:
        if utterance is not self._open:
            return
        text, *rivals = map(utterance.text_with, (read.text.strip(), *read.rivals))
        self._owner.on_text(utterance.number, text)
        if utterance is self._open:
            self._tell_likely(utterance, text)
        if utterance is self._open:
            self._act(self._endpointer.take_text(text, rivals, read.certainty))

    def _on_score(self, utterance: OpenUtterance, score: float) -> None:
        if utterance is self._open:
            self._act(self._endpointer.score(score))

    def _tell_likely(self, utterance: OpenUtterance, text: str) -> None:
        self._owner.on_likely_end(utterance.number, text, ended_s=utterance.likely_ended_s)

    def _on_ended(self, utterance: OpenUtterance, ended: TurnEnded) -> None:
        self._open = None
        self._read_to_ms = ended.at_ms
        utterance.piece.pcm = self._tape.cut(utterance.piece.from_ms, ended.at_ms + TAIL_MS)
        utterance.at_ms = self._clock.client_ms(ended.at_ms)
        utterance.ended_s = self._clock.loop_s(ended.at_ms, self._now())
        self._metrics.end_wait.labels(ended.why).observe(ended.waited_ms / 1000)
        self._owner.on_speech_ended(utterance.number, utterance.at_ms)
        if self._finished.full():
            self._metrics.utterances.labels("crowded").inc()
            self._readings.cancel(utterance)
            self._owner.on_nothing(utterance.number, "crowded", SpeechLost("Too much was said before the last text was ready."))
            return
        self._n_awaited += 1
        self._finished.put_nowait(utterance)

    def _close(self, why: Literal["noise", "cleared"]) -> None:
        """The open utterance is none."""
        utterance, self._open = self._open, None
        if utterance is not None:
            self._readings.cancel(utterance)
            self._owner.on_speech_ended(utterance.number, self._clock.client_ms(self._endpointer.spoken_until_ms))
            self._owner.on_nothing(utterance.number, why)
