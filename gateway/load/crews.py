"""The client processes of a load: started together, listened to, their results added up."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct

from gateway.load.crew import Errand, Note, Result
from gateway.load.tally import Tally, empty

GUESTS_EACH = 250  # about half a core of one process with pcm16 in 100 ms frames
LINE_BYTES = 16 * 1024 * 1024
STOP_S = 5.0
_read = msgspec.json.Decoder(Note | Result).decode


def how_many(n_guests: int) -> int:
    """Client processes for so many guests at once: never more than there are cores."""
    return max(1, min(-(-n_guests // GUESTS_EACH), os.cpu_count() or 1))


class Combined(Struct, kw_only=True):
    """All processes together. `cpu_s`: of each window."""

    windows: list[Tally]
    outside: Tally
    cpu_s: list[float]
    n_missing: int


class CrewProcess:
    """One of them, and the last thing that it told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.note = Note(live=0, so_far={}, n_errors=0, cpu_s=0.0, lag_ms=0.0)
        self.result: Result | None = None

    async def follow(self) -> None:
        """Read what it tells, until its result."""
        assert self.process.stdout is not None, "made with a pipe"
        while line := await self.process.stdout.readline():
            told = _read(line)
            if isinstance(told, Result):
                self.result = told
            else:
                self.note = told

    def stop(self) -> None:
        """Ask it to end now."""
        if self.process.stdin is not None:
            self.process.stdin.close()


@asynccontextmanager
async def crews(errands: Sequence[Errand], key: str | None) -> AsyncIterator[list[CrewProcess]]:
    """Running processes, ended with the block."""
    environment = dict(os.environ) | ({"STRETTO_LOAD_KEY": key} if key else {})
    made: list[CrewProcess] = []
    try:
        for errand in errands:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                "from gateway.load.crew import main; main()",
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LINE_BYTES,
                start_new_session=True,  # Ctrl-C is ours; they end with their stdin
            )
            made.append(CrewProcess(process))
            assert process.stdin is not None, "made with a pipe"
            process.stdin.write(msgspec.json.encode(errand) + b"\n")
            await process.stdin.drain()
        yield made
    finally:
        for crew in made:
            crew.stop()
        for crew in made:
            await _end(crew.process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def combined(made: Sequence[CrewProcess], n_windows: int) -> Combined:
    """The results added up; a process that ended without one is counted as missing."""
    whole = Combined(windows=[empty() for _ in range(n_windows)], outside=empty(), cpu_s=[0.0] * n_windows, n_missing=0)
    for crew in made:
        if crew.result is None:
            whole.n_missing += 1
            continue
        whole.outside.merge(crew.result.outside)
        for number, tally in enumerate(crew.result.windows):
            whole.windows[number].merge(tally)
            whole.cpu_s[number] += crew.result.cpu_s[number]
    return whole
