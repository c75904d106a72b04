"""The process above the workers: holds the port and the book of the keys, starts workers, starts a dead one again, stops all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.workers import crowds, places
from gateway.workers.book import BookKeeper
from gateway.workers.crowds import SharedCrowds
from gateway.workers.places import SharedPlaces
from gateway.workers.worker import Worker

LOOK_S = 0.05
BACKOFF_S = (0.2, 1.0, 3.0, 10.0)  # before a worker that died is started again; the last one repeats
HEALTHY_S = 30.0  # after which its next death counts as its first

log = logging.getLogger("stretto.workers")


class Launch(Struct, frozen=True, kw_only=True):
    """`command`: starts one worker, less its number and folder; `count` of them. `environment`: beside the parent's own."""

    command: Sequence[str]
    environment: Mapping[str, str]
    count: int


class Failed(Exception):
    """A worker ended before it was ready; it has said why. `status`: its own."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a worker ended with {status} before it was ready")
        self.status = status


async def supervise(launch: Launch, on_ready: Callable[[], None]) -> int:
    """Run the workers until SIGTERM or SIGINT, which all of them get, the second one too; the exit status."""
    with tempfile.TemporaryDirectory(prefix="stretto-") as name:  # readable by this user alone
        folder = Path(name)
        places.lay_out(folder / "places", launch.count)
        crowds.lay_out(folder / "crowds", launch.count)
        children = [_Child(launch, Worker(number=number, count=launch.count, folder=folder)) for number in range(launch.count)]
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _pass_on, children, stopping)
        try:
            async with asyncio.TaskGroup() as keeping:
                book = keeping.create_task(BookKeeper(loop.time).run(Worker(number=0, count=launch.count, folder=folder).book), name="book")
                async with asyncio.TaskGroup() as tasks:
                    for child in children:
                        tasks.create_task(child.run(stopping), name=f"worker {child.number}")
                    tasks.create_task(_announce(children, stopping, on_ready), name="readiness")
                book.cancel()
        except BaseExceptionGroup as group:
            if (failed := group.subgroup(Failed)) is None:
                raise
            log.error("a worker could not start", extra={"n_failed": len(failed.exceptions)})
        return max(child.status for child in children)


def _pass_on(children: Sequence[_Child], stopping: asyncio.Event) -> None:
    stopping.set()
    for child in children:
        child.stop()


async def _announce(children: Sequence[_Child], stopping: asyncio.Event, on_ready: Callable[[], None]) -> None:
    while not all(child.is_ready for child in children):
        if stopping.is_set():
            return
        await asyncio.sleep(LOOK_S)
    on_ready()


class _Child:
    """One worker, in whichever process it is now."""

    def __init__(self, launch: Launch, worker: Worker) -> None:
        self.number = worker.number
        self.status = 0
        self._worker = worker
        self._command = [*launch.command, "--worker", f"{worker.number}/{worker.count}", "--row", str(worker.folder)]
        self._environment = {**os.environ, **launch.environment}
        self._places = SharedPlaces(worker.places, worker.number, worker.count)
        self._crowds = SharedCrowds(worker.crowds, worker.number, worker.count)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_ready(self) -> bool:
        """It answers its siblings, and so serves."""
        return self._worker.socket(self.number).exists()

    def stop(self) -> None:
        """SIGTERM, where it runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    async def run(self, stopping: asyncio.Event) -> None:
        """Keep it running until `stopping`. Raises `Failed` when it never became ready."""
        n_deaths, loop = 0, asyncio.get_running_loop()
        while not stopping.is_set():
            began_s = loop.time()
            was_ready = await self._run_once()
            if stopping.is_set():
                return
            if not was_ready and n_deaths == 0:
                raise Failed(self.status)
            n_deaths = 1 if loop.time() - began_s > HEALTHY_S else n_deaths + 1
            log.error("worker died", extra={"worker": self.number, "status": self.status, "n_deaths": n_deaths})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BACKOFF_S[min(n_deaths, len(BACKOFF_S)) - 1]):
                    await stopping.wait()

    async def _run_once(self) -> bool:
        """From its start to its end; whether it was ready in between. A cancel ends it."""
        # a session of its own: a Ctrl-C in the terminal is for the parent, which passes it on once
        self._process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment, start_new_session=True, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            self.status = await self._process.wait()
        except asyncio.CancelledError:
            self.stop()
            self.status = await self._process.wait()
            raise
        was_ready = self.is_ready
        self._worker.socket(self.number).unlink(missing_ok=True)
        self._places.clear()
        self._crowds.clear()
        return was_ready
