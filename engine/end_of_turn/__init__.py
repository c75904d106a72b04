"""Whether a speaker has finished, with smart-turn in a worker process."""

from __future__ import annotations

import itertools
from contextlib import aclosing
from pathlib import Path

from engine.api import EngineError, Health
from engine.worker import Worker, WorkerSpec

NAME = "smart-turn"
HEARD_MS = 8000  # source: smart-turn v3, the model's window
_HEARD_BYTES = HEARD_MS * 16 * 2
_CAPACITY = 64  # a question of each of 64 conversations; it takes 60 ms, so the last one waits for four seconds
_STALL_S = 5.0


class SmartTurn:
    """The `EndOfTurn` over the file `model` (smart-turn-v3.2-cpu.onnx). `threads` for one inference."""

    def __init__(self, model: Path, threads: int = 1) -> None:
        setup = {"model": str(model), "threads": threads}
        spec = WorkerSpec(name=NAME, factory="engine.end_of_turn.stage:SmartTurnStage", setup=setup, capacity=_CAPACITY, stall_s=_STALL_S)
        self._worker = Worker(spec)
        self._numbers = itertools.count()

    @property
    def name(self) -> str:
        return NAME

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self._worker.pid

    async def start(self) -> None:
        await self._worker.start()

    async def close(self) -> None:
        await self._worker.close()

    def health(self) -> Health:
        return self._worker.health()

    async def score(self, pcm: bytes) -> float:
        heard = pcm[: len(pcm) // 2 * 2][-_HEARD_BYTES:]
        async with aclosing(self._worker.stream(f"score {next(self._numbers)}", heard)) as answers:
            async for answer in answers:
                return float(answer)
        raise EngineError(f"{NAME} gave no score")
