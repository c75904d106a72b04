"""The queue inside a worker: which request takes the next step.

A stage answers a request with an iterator; each of its steps is one piece of work (one inference). Between two steps the
request goes to the back of its priority, so that a long text never holds the voice against a short one. A stage that streams
from inside a step (a language model's callback) sends through the job and returns nothing.
"""

from __future__ import annotations

import heapq
import itertools
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from engine.api import EngineError
from engine.worker.frames import Kind

Send = Callable[[Kind, int, Any], None]  # Any: whatever msgpack holds


class Job:
    """One request as its stage sees it."""

    def __init__(self, number: int, priority: int, body: Any, send: Send) -> None:  # Any: the stage's own message
        self.number = number
        self.priority = priority
        self.body = body
        self.steps: Iterator[Any] | None = None  # Any: see `body`
        self._send = send
        self._lock = threading.Lock()
        self._cancelled = False
        self._on_cancel: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._cancelled

    def send(self, message: Any) -> None:  # Any: see `body`
        """A message to whoever asked; dropped once they have gone."""
        if not self._cancelled:
            self._send(Kind.MESSAGE, self.number, message)

    def show_progress(self) -> None:
        """Say that a step is alive though it has nothing to send yet."""
        self._send(Kind.ALIVE, self.number, None)

    @contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Within this block a cancel calls `interrupt`, from another thread; at once if it has come already."""
        with self._lock:
            self._on_cancel = interrupt
            if self._cancelled:
                interrupt()
        try:
            yield
        finally:
            with self._lock:
                self._on_cancel = None

    def cancel(self) -> None:
        """Nobody waits any more: mark the job and break into a running step."""
        with self._lock:
            self._cancelled = True
            if self._on_cancel is not None:
                self._on_cancel()


class Stage(Protocol):
    """What a worker runs. `concurrency` steps run at once, each in a thread of its own."""

    concurrency: int

    def describe(self) -> Any:  # Any: the stage's own message
        """Sent to the parent when the stage is ready."""

    def handle(self, job: Job) -> Iterable[Any]:  # Any: the stage's own messages
        """Messages of a request, a step at a time. Raises `EngineError`."""


class JobQueue:
    """Requests waiting for their next step, by priority, then by who has waited longest."""

    def __init__(self, stage: Stage, send: Send) -> None:
        self._stage = stage
        self._send = send
        self._ready: list[tuple[int, int, Job]] = []
        self._jobs: dict[int, Job] = {}
        self._tickets = itertools.count()
        self._changed = threading.Condition()

    def open(self, number: int, priority: int, body: Any) -> None:  # Any: the stage's own message
        job = Job(number, priority, body, self._send)
        with self._changed:
            self._jobs[number] = job
            self._put(job)

    def cancel(self, number: int) -> None:
        """A request that waits leaves at its turn without running; one that runs is interrupted."""
        with self._changed:
            job = self._jobs.get(number)
        if job is not None:
            job.cancel()

    def run(self) -> None:
        """Take steps for ever: the body of a worker thread."""
        while True:
            with self._changed:
                while not self._ready:
                    self._changed.wait()
                _, _, job = heapq.heappop(self._ready)
            if self._step(job):
                with self._changed:
                    self._put(job)
            else:
                with self._changed:
                    del self._jobs[job.number]

    def _put(self, job: Job) -> None:
        heapq.heappush(self._ready, (job.priority, next(self._tickets), job))
        self._changed.notify()

    def _step(self, job: Job) -> bool:
        """Run one step; False when the request is over."""
        try:
            return self._advance(job)
        except EngineError as error:
            self._send(Kind.ERROR, job.number, {"kind": error.kind, "message": str(error)})
        except Exception as error:  # the thread's owner: a fault in one request must not end the stage
            if job.cancelled:  # an interrupted inference raises; nobody waits for it
                self._send(Kind.DONE, job.number, None)
            else:
                _print_fault(error)
                self._send(Kind.ERROR, job.number, {"kind": EngineError.kind, "message": f"the stage raised {type(error).__name__}"})
        return False

    def _advance(self, job: Job) -> bool:
        if not job.cancelled:
            if job.steps is None:
                self._send(Kind.BEGUN, job.number, None)
                job.steps = iter(self._stage.handle(job))
            for message in job.steps:
                job.send(message)
                return True
        close = getattr(job.steps, "close", None)
        if close is not None:
            close()
        self._send(Kind.DONE, job.number, None)
        return False


def _print_fault(error: Exception) -> None:
    """Type and places of a fault, for the parent's log. Never its message: it may quote what a user said."""
    places = [f"{place.filename}:{place.lineno} {place.name}" for place in traceback.extract_tb(error.__traceback__)[-6:]]
    print(f"{type(error).__name__} at {' < '.join(reversed(places))}", file=sys.stderr, flush=True)
