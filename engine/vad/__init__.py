"""Voice activity with Silero in a worker process: one model, one inference for all streams that have a frame.

Two rounds are at least 8 ms apart, so that a loaded gateway sends 125 batches a second and not a message for each frame of each
stream; a frame that comes after a pause is scored at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct

from engine.api import EngineError, Health, VoiceFrame
from engine.voice_stream import VoiceStream
from engine.worker import Worker, WorkerSpec

NAME = "silero"
_ROUND_S = 0.008
_MAX_FRAMES = 16  # of one stream in one batch: half a second, so that one that catches up holds the others for 10 ms at most
_STALL_S = 5.0  # a round takes some milliseconds
_RETRY_S = 0.05  # while the worker restarts


class _Taken(Struct):
    """Frames of one stream that are with the engine."""

    stream: VoiceStream
    number: int
    pts_ms: int
    pcm: bytes


class SileroDetector:
    """The `VoiceDetector` over the file `model` (silero_vad.onnx). `threads` for one inference."""

    def __init__(self, model: Path, threads: int = 1) -> None:
        setup = {"model": str(model), "threads": threads}
        self._worker = Worker(WorkerSpec(name=NAME, factory="engine.vad.stage:SileroStage", setup=setup, capacity=4, stall_s=_STALL_S))
        self._streams: dict[str, VoiceStream] = {}
        self._forgotten: list[int] = []  # numbers whose memory the worker may free
        self._n_streams = self._n_rounds = 0
        self._fed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None  # holds the one task; opened by `start`, waited for by `close`
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self._worker.pid

    async def start(self) -> None:
        await self._worker.start()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._task = self._tasks.create_task(self._score_for_ever(), name=f"{NAME} rounds")

    async def close(self) -> None:
        for stream in self._streams.values():
            stream.end()
        self._streams.clear()
        tasks, self._tasks = self._tasks, None
        if tasks is not None and self._task is not None:
            self._task.cancel()
            await tasks.__aexit__(None, None, None)
        await self._worker.close()

    def health(self) -> Health:
        return self._worker.health()

    def feed(self, stream_id: str, pcm: bytes) -> None:
        self._open(stream_id).feed(pcm)
        self._fed.set()

    async def frames(self, stream_id: str) -> AsyncGenerator[VoiceFrame, None]:
        async with aclosing(self._open(stream_id).read()) as frames:
            async for frame in frames:
                yield frame

    def reset(self, stream_id: str, pts_ms: int = 0) -> None:
        stream = self._open(stream_id)
        self._forgotten.append(stream.number)
        stream.restart(self._next_number(), pts_ms)

    def drop(self, stream_id: str) -> None:
        stream = self._streams.pop(stream_id, None)
        if stream is not None:
            self._forgotten.append(stream.number)
            stream.end()

    def dropped_ms(self, stream_id: str) -> int:
        stream = self._streams.get(stream_id)
        return 0 if stream is None else stream.dropped_ms

    def _open(self, stream_id: str) -> VoiceStream:
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._streams[stream_id] = VoiceStream(self._next_number())
        return stream

    def _next_number(self) -> int:
        self._n_streams += 1
        return self._n_streams

    async def _score_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._fed.wait()
            self._fed.clear()
            began_s = loop.time()
            while taken := self._take():
                await self._round(taken)
            await asyncio.sleep(max(0.0, began_s + _ROUND_S - loop.time()))

    def _take(self) -> list[_Taken]:
        batch = []
        for stream in self._streams.values():
            if stream.has_frames:
                pts_ms, pcm = stream.take(_MAX_FRAMES)
                batch.append(_Taken(stream, stream.number, pts_ms, pcm))
        return batch

    async def _round(self, taken: Sequence[_Taken]) -> None:
        try:
            scores = await self._ask(taken)
        except EngineError:
            for part in taken:
                if part.stream.number == part.number:
                    part.stream.give_back(part.pcm)
            for stream in self._streams.values():
                stream.is_fresh = True  # the memory died with the process
            await asyncio.sleep(_RETRY_S)
            self._fed.set()
            return
        for part, probabilities in zip(taken, scores, strict=True):
            if part.stream.number == part.number and not part.stream.is_over:
                part.stream.deliver(part.pts_ms, probabilities)

    async def _ask(self, taken: Sequence[_Taken]) -> list[list[float]]:
        """Scores for each part. Raises `EngineError`."""
        forgotten, self._forgotten = self._forgotten, []
        streams = [(part.number, part.stream.is_fresh, part.pcm) for part in taken]
        for part in taken:
            part.stream.is_fresh = False
        self._n_rounds += 1
        async with aclosing(self._worker.stream(f"round {self._n_rounds}", {"streams": streams, "forget": forgotten})) as answers:
            async for answer in answers:
                scores: list[list[float]] = answer
                return scores
        raise EngineError(f"{NAME} gave no scores")
