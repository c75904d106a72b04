"""Scripted ears for tests and benches: they keep the promises of listening in `engine/api` and run no model.

All waits are timers of the running loop, so a virtual-time loop drives them. By default they judge by loudness and answer in turn
from a script. What was asked is kept in bounded records that tests read.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

from msgspec import Struct

from engine.api import EngineError, EngineNotReady, Health, Transcript, Transcription, VoiceFrame
from engine.audio import bytes_to_ms, peak
from engine.voice_stream import FRAME_BYTES, VoiceStream

N_RECORDS = 64
LOUD = 0.01  # of full scale: the scripted voice hums at 0.25, silence is zero
_RATE_HZ = 16_000
_PIECE = re.compile(r"\S+\s*")
_MS_PER_WORD = 350  # a partial of scripted speech holds a word for each 350 ms of it

Probability = Callable[[int, bytes], float]  # where a frame begins in ms, its PCM


class _Mortal:
    """Whether a scripted ear lives."""

    def __init__(self) -> None:
        self._health = Health(ready=False, detail="not started")

    @property
    def name(self) -> str:
        return "fake"

    async def start(self) -> None:
        self._health = Health(ready=True, detail="fake")

    async def close(self) -> None:
        self.die("closed")

    def die(self, detail: str = "died") -> None:
        """As a killed process; `start` brings it back."""
        self._health = Health(ready=False, detail=detail)

    def health(self) -> Health:
        return self._health

    def _check_ready(self) -> None:
        if not self._health.ready:
            raise EngineNotReady(self._health.detail)


def by_loudness(pts_ms: int, pcm: bytes) -> float:
    """Speech is what is not silent."""
    return 1.0 if peak(pcm) > LOUD else 0.0


def by_spans(*spans: tuple[int, int]) -> Probability:
    """Speech is what lies in the given times, in milliseconds of the stream's clock, whatever it sounds like."""
    return lambda pts_ms, pcm: 1.0 if any(start <= pts_ms < end for start, end in spans) else 0.0


class ScriptedDetector(_Mortal):
    """A `VoiceDetector` whose scores come `delay_ms` after the audio. `scripts`: stream -> its own probability."""

    def __init__(
        self, probability: Probability = by_loudness, *, delay_ms: float = 0.0, scripts: Mapping[str, Probability] | None = None
    ) -> None:
        super().__init__()
        self.delay_ms = delay_ms
        self.scripts = dict(scripts or {})
        self.resets: deque[tuple[str, int]] = deque(maxlen=N_RECORDS)
        self._probability = probability
        self._streams: dict[str, VoiceStream] = {}
        self._n_streams = 0

    @property
    def n_open(self) -> int:
        """Streams that were not dropped."""
        return len(self._streams)

    async def start(self) -> None:
        await super().start()
        for stream_id, stream in self._streams.items():
            self._score(stream_id, stream)

    async def close(self) -> None:
        await super().close()
        for stream in self._streams.values():
            stream.end()
        self._streams.clear()

    def feed(self, stream_id: str, pcm: bytes) -> None:
        stream = self._open(stream_id)
        for start in range(0, len(pcm), FRAME_BYTES):  # as it would come: no script drops audio because of one large piece
            stream.feed(pcm[start : start + FRAME_BYTES])
            if self._health.ready:
                self._score(stream_id, stream)

    async def frames(self, stream_id: str) -> AsyncGenerator[VoiceFrame, None]:
        async with aclosing(self._open(stream_id).read()) as frames:
            async for frame in frames:
                yield frame

    def reset(self, stream_id: str, pts_ms: int = 0) -> None:
        self.resets.append((stream_id, pts_ms))
        self._open(stream_id).restart(self._next_number(), pts_ms)

    def drop(self, stream_id: str) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            stream.end()

    def dropped_ms(self, stream_id: str) -> int:
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.dropped_ms

    def _open(self, stream_id: str) -> VoiceStream:
        if stream_id not in self._streams:
            self._streams[stream_id] = VoiceStream(self._next_number())
        return self._streams[stream_id]

    def _next_number(self) -> int:
        self._n_streams += 1
        return self._n_streams

    def _score(self, stream_id: str, stream: VoiceStream) -> None:
        probability = self.scripts.get(stream_id, self._probability)
        while stream.has_frames:
            pts_ms, pcm = stream.take(1)
            scores = [probability(pts_ms, pcm)]
            if self.delay_ms > 0:
                asyncio.get_running_loop().call_later(self.delay_ms / 1000, self._deliver, stream, stream.number, pts_ms, scores)
            else:
                stream.deliver(pts_ms, scores)

    def _deliver(self, stream: VoiceStream, number: int, pts_ms: int, scores: Sequence[float]) -> None:
        if self._health.ready and stream.number == number and not stream.is_over:
            stream.deliver(pts_ms, scores)


class ScriptedEndOfTurn(_Mortal):
    """An `EndOfTurn` that answers in turn from `scores`, or from `judge` where given, after `delay_ms`."""

    def __init__(self, scores: Sequence[float] = (0.9,), *, delay_ms: float = 20.0, judge: Callable[[bytes], float] | None = None) -> None:
        super().__init__()
        if not scores:
            raise ValueError("scores is empty; a scripted end of turn needs at least one")
        self.scores, self.delay_ms, self.judge = scores, delay_ms, judge
        self.asked_ms: deque[float] = deque(maxlen=N_RECORDS)  # lengths of what was heard
        self._n_answered = 0

    async def score(self, pcm: bytes) -> float:
        self._check_ready()
        self.asked_ms.append(bytes_to_ms(len(pcm), _RATE_HZ))
        score = self.scores[self._n_answered % len(self.scores)] if self.judge is None else self.judge(pcm)
        self._n_answered += 1
        await asyncio.sleep(self.delay_ms / 1000)
        self._check_ready()
        return score


class Heard(Struct, frozen=True, kw_only=True):
    """One utterance: its text; `partials` are (milliseconds of audio from which on it is understood, text), else its first words.

    `errors`: one for each of the first requests of this utterance, then it works.
    """

    text: str
    partials: tuple[tuple[int, str], ...] | None = None
    language: str = "en"
    final_ms: float | None = None
    errors: tuple[type[EngineError], ...] = ()
    rivals: tuple[str, ...] = ()
    certainty: float | None = None

    def partial(self, length_ms: float) -> str:
        """What is understood of the first `length_ms`."""
        if self.partials is None:
            return "".join(_PIECE.findall(self.text)[: int(length_ms / _MS_PER_WORD)]).strip()
        return next((text for start_ms, text in reversed(self.partials) if start_ms <= length_ms), "")


class ScriptedRecognizer(_Mortal):
    """A `Recognizer` that gives each new utterance the next of `script`, round and round. Requests run side by side."""

    def __init__(
        self, script: Sequence[Heard | str] = ("What is down there in the sea?",), *, final_ms: float = 80.0, partial_ms: float = 80.0
    ) -> None:
        super().__init__()
        if not script:
            raise ValueError("script is empty; a scripted recognizer needs at least one utterance")
        self.script = [Heard(text=heard) if isinstance(heard, str) else heard for heard in script]
        self.final_ms, self.partial_ms = final_ms, partial_ms
        self.requests: deque[Transcription] = deque(maxlen=N_RECORDS)
        self.cancelled: deque[str] = deque(maxlen=N_RECORDS)  # utterances given to cancel()
        self.abandoned: deque[str] = deque(maxlen=N_RECORDS)  # utterances whose caller was cancelled
        self._heard: dict[str, Heard] = {}
        self._n_asked: dict[str, int] = {}
        self._open: dict[str, asyncio.Future[str]] = {}  # utterance -> its running request; done with a word: why it ended early
        self._n_heard = 0

    @property
    def n_open(self) -> int:
        """Requests now being worked on."""
        return len(self._open)

    def die(self, detail: str = "died") -> None:
        super().die(detail)
        for ended in self._open.values():
            _end(ended, "dead")

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        self._check_ready()
        self.requests.append(transcription)
        heard = self._next(transcription.utterance)
        if (fault := self._fault(transcription.utterance, heard)) is not None:
            raise fault("scripted failure")
        if transcription.utterance in self._open:
            _end(self._open[transcription.utterance], "replaced")
        wait_ms = self.partial_ms
        if transcription.is_final:
            wait_ms = self.final_ms if heard.final_ms is None else heard.final_ms
        why = await self._wait(transcription.utterance, wait_ms)
        if why == "dead":
            raise EngineNotReady(self._health.detail)
        if why:
            return None
        if transcription.is_final:
            self._forget(transcription.utterance)
            return Transcript(text=heard.text, language=heard.language, rivals=heard.rivals, certainty=heard.certainty)
        return Transcript(text=heard.partial(bytes_to_ms(len(transcription.pcm), _RATE_HZ)), language=heard.language)

    def cancel(self, utterance: str) -> None:
        self.cancelled.append(utterance)
        if utterance in self._open:
            _end(self._open[utterance], "cancelled")
        self._forget(utterance)

    async def _wait(self, utterance: str, wait_ms: float) -> str:
        """Why the wait ended before its time, or ""."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[utterance] = ended
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _end, ended, "")
        try:
            return await ended
        except asyncio.CancelledError:
            self.abandoned.append(utterance)
            raise
        finally:
            timer.cancel()
            if self._open.get(utterance) is ended:
                del self._open[utterance]

    def _next(self, utterance: str) -> Heard:
        if utterance not in self._heard:
            self._heard[utterance] = self.script[self._n_heard % len(self.script)]
            self._n_heard += 1
        return self._heard[utterance]

    def _fault(self, utterance: str, heard: Heard) -> type[EngineError] | None:
        n_asked = self._n_asked[utterance] = self._n_asked.get(utterance, 0) + 1
        return heard.errors[n_asked - 1] if n_asked <= len(heard.errors) else None

    def _forget(self, utterance: str) -> None:
        self._heard.pop(utterance, None)
        self._n_asked.pop(utterance, None)


def _end(ended: asyncio.Future[str], why: str) -> None:
    if not ended.done():
        ended.set_result(why)
