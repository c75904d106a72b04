"""Servers' compressed speech, decoded in a process of its own: what a server sends reaches a compiled library there alone.

A stream keeps its state in the process. When that dies, every answer that is being decoded has broken off, and the next voice in the chain
finishes it; new answers are decoded by the next process.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any, Protocol

import msgspec

from engine.api import EngineError, EngineNotReady
from engine.audio_codecs import CorruptAudio
from engine.tts.decoding import AudioFormat, SpeechDecoder, UnexpectedAnswer
from engine.worker import Worker, WorkerSpec
from engine.worker.jobs import Job

Setup = tuple[str | None, AudioFormat, int, int]
_FAULTS: dict[str, type[EngineError]] = {fault.kind: fault for fault in (CorruptAudio, UnexpectedAnswer)}


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of one answer; `data` None is its end. `setup` comes with the first: `SpeechDecoder`'s arguments."""

    answer: int
    setup: Setup | None
    data: bytes | None
    over: tuple[int, ...] = ()


class Answer(Protocol):
    """The decoder of one answer."""

    async def feed(self, data: bytes | None) -> bytes:
        """PCM that is ready, at the end (None) the rest. Raises as `SpeechDecoder`, and `EngineError` when the process died."""

    def close(self) -> None:
        """No more comes."""


class Decoders(Protocol):
    """What decodes the answers of one server. Start it before the first one, in the task that closes it."""

    async def start(self) -> None:
        """Returns when answers are taken. Raises `EngineSetupError`."""

    async def close(self) -> None:
        """Answers that are being decoded break off."""

    def open(self, content_type: str | None, asked: AudioFormat, pcm_rate_hz: int, to_rate_hz: int) -> Answer:
        """For one answer; arguments as `SpeechDecoder`'s."""


class SpeechStage:
    """The decoders inside their process."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: nothing is set up
        self._decoders: dict[int, SpeechDecoder] = {}

    def describe(self) -> Any:  # Any: msgpack values
        return {}

    def handle(self, job: Job) -> Iterable[Any]:  # Any: [PCM] or [kind, message]
        piece = msgspec.convert(job.body, Piece)
        for answer in piece.over:
            self._decoders.pop(answer, None)
        try:
            if piece.setup is not None:
                self._decoders[piece.answer] = SpeechDecoder(*piece.setup)
            decoder = self._decoders[piece.answer]
            job.send([decoder.flush() if piece.data is None else decoder.feed(piece.data)])
        except (CorruptAudio, UnexpectedAnswer) as error:
            job.send([error.kind, str(error)])
        return ()


class SpeechDecoders:
    """`Decoders` in a process of their own."""

    def __init__(self, name: str, factory: str = "engine.tts.decoders:SpeechStage") -> None:
        self.worker = Worker(WorkerSpec(name=f"decoders of {name}", factory=factory, capacity=256, stall_s=5.0, backoff_max_s=1.0))
        self._answers, self._pieces = itertools.count(1), itertools.count(1)
        self._over: list[int] = []

    async def start(self) -> None:
        """As promised."""
        await self.worker.start()

    async def close(self) -> None:
        """As promised."""
        await self.worker.close()

    def open(self, content_type: str | None, asked: AudioFormat, pcm_rate_hz: int, to_rate_hz: int) -> RemoteSpeech:
        """As promised."""
        return RemoteSpeech(self, next(self._answers), (content_type, asked, pcm_rate_hz, to_rate_hz))

    def forget(self, answer: int) -> None:
        """It is over; the process hears of it with the next piece of another one."""
        self._over.append(answer)

    async def decode(self, piece: Piece) -> bytes:
        """PCM of a piece. Raises `EngineError` of the decoder's kind, or when the process died."""
        over, self._over = tuple(self._over), []
        body = msgspec.to_builtins(msgspec.structs.replace(piece, over=over), builtin_types=(bytes,))
        try:
            async with aclosing(self.worker.stream(f"piece {next(self._pieces)}", body)) as answers:
                said = [message async for message in answers]
        except EngineNotReady as error:
            raise EngineError("the decoder's process ended under this answer") from error
        if not said or len(said[0]) == 1:
            return bytes(said[0][0]) if said else b""
        kind, message = said[0]
        raise _FAULTS.get(kind, EngineError)(message)


class RemoteSpeech:
    """One answer of a server, decoded elsewhere."""

    def __init__(self, decoders: SpeechDecoders, answer: int, setup: Setup) -> None:
        self._decoders, self._answer = decoders, answer
        self._setup: Setup | None = setup
        self._process = decoders.worker.pid

    async def feed(self, data: bytes | None) -> bytes:
        """As promised."""
        if self._setup is not None:
            self._process = self._decoders.worker.pid
        elif self._process != self._decoders.worker.pid:
            raise EngineError("the decoder's process ended under this answer")
        setup, self._setup = self._setup, None
        return await self._decoders.decode(Piece(self._answer, setup, data))

    def close(self) -> None:
        """As promised."""
        if self._setup is None:  # else the process never heard of it
            self._decoders.forget(self._answer)
