"""Stages for the tests of the worker: small, real, and each with one fault."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from engine.api import ContextTooLong, EngineSetupError
from engine.worker.jobs import Job


class Echo:
    """Does what the request says: `say` messages, then `then`."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: a test's own settings
        self._setup = setup

    def describe(self) -> Any:  # Any: see above
        return {"setup": self._setup, "pid": os.getpid()}

    def handle(self, job: Job) -> Iterator[Any]:  # Any: a test's own messages
        yield from job.body.get("say", ())
        then = job.body.get("then")
        if then == "raise":
            raise ValueError(job.body["say"])
        if then == "too long":
            raise ContextTooLong("5000 tokens do not fit")
        if then == "die":
            os._exit(3)
        if then == "hang":
            job.send("hanging")  # from inside the step: no cancel comes in between
            threading.Event().wait()
        if then == "hold the interpreter":
            ctypes.PyDLL(None).sleep(600)
        if then == "wait":
            yield from _wait_interruptibly(job)
        if then == "print":
            print("a line from the stage", file=sys.stderr, flush=True)


def _wait_interruptibly(job: Job) -> Iterator[Any]:  # Any: a test's own messages
    over = threading.Event()
    job.send("waiting")  # from inside the step: no other request's step comes in between
    with job.interruptible(over.set):
        over.wait(60)
    if job.cancelled:
        raise RuntimeError("an interrupted inference raises")
    yield "nobody cancelled"


def _talk_on(job: Job, seconds: float) -> Iterator[Any]:  # Any: a test's own messages
    """One step as long as that, which shows all the time that it goes on."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        job.show_progress()
        time.sleep(0.02)
    yield "said"


class Turns:
    """One step takes a moment; tells in which order steps were taken. "hold" keeps all others waiting until it is cancelled."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: a test's own settings
        self._taken = 0

    def describe(self) -> Any:  # Any: see above
        return None

    def handle(self, job: Job) -> Iterator[Any]:  # Any: a test's own messages
        if job.body == "hold":
            yield from _wait_interruptibly(job)
        elif isinstance(job.body, float):
            yield from _talk_on(job, job.body)
        for _ in range(job.body if isinstance(job.body, int) else 0):
            time.sleep(0.02)
            self._taken += 1
            yield self._taken


class Pair(Echo):
    """Two at once, sent from inside the step: the first request ends only after a second one has come."""

    concurrency = 2

    def __init__(self, setup: Any) -> None:  # Any: a test's own settings
        super().__init__(setup)
        self._both = threading.Barrier(2)

    def handle(self, job: Job) -> Iterable[Any]:  # type: ignore[override]  # a stage may also send from inside
        job.send("waiting")
        self._both.wait(30)
        job.send("met")
        return ()


class DiesOnce(Echo):
    """Dies while it loads unless a file exists; the file comes with the second start."""

    def __init__(self, setup: Any) -> None:  # Any: a path
        super().__init__(setup)
        if os.path.exists(setup):
            os._exit(7)


def refuse(setup: Any) -> Echo:  # Any: a test's own settings
    raise EngineSetupError(f"no weights at {setup}")


def die_loading(setup: Any) -> Echo:  # Any: a test's own settings
    print("segmentation fault of some library", file=sys.stderr, flush=True)
    os.abort()


def hang_loading(setup: Any) -> Echo:  # Any: a test's own settings
    threading.Event().wait()
    raise AssertionError("nobody wakes it")
