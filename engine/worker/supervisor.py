"""A stage in its own process, seen from the event loop: ready, heartbeat, restart, bounded requests, cancel.

Reads happen in transport callbacks, without a task: a message is in its request's queue before the loop turns once more. One task
per worker, born in `start` and awaited in `close`, spawns, watches and restarts the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any

from msgspec import Struct

from engine.api import (
    ContextTooLong,
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    EngineStalled,
    Health,
    VoiceUnavailable,
)
from engine.worker.frames import Frame, Kind
from engine.worker.process import Process

log = logging.getLogger(__name__)

_ERRORS = {error.kind: error for error in (EngineError, EngineNotReady, EngineStalled, EngineBusy, ContextTooLong, VoiceUnavailable)}
_BACKLOG_MESSAGES = 8192  # unread messages of one request: sixteen times the default reply; more is a consumer that has stopped


class WorkerSpec(Struct, frozen=True, kw_only=True):
    """A stage and its deadlines. `factory` is "module:callable" and gets `setup` (anything msgpack holds) in the child.

    `capacity`: open requests, waiting ones included. `stall_s`: how long a begun request may show no progress, and how
    long a begun one may take to leave when it is cancelled. `silence_s`: how long the process may leave a heartbeat unanswered.
    """

    name: str
    factory: str
    setup: Any = None  # Any: the stage's own settings
    capacity: int = 64
    ready_s: float = 120.0
    stall_s: float = 20.0
    heartbeat_s: float = 1.0
    silence_s: float = 10.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class _Request:
    """One open request: what came for it and who waits. Changed on the event loop only."""

    def __init__(self, number: int, request_id: str) -> None:
        self.number = number
        self.request_id = request_id
        self.messages: deque[Any] = deque()  # Any: the stage's own messages
        self.ended = False  # nothing more comes
        self.left = False  # the consumer has gone; the child still has to say DONE
        self.error: EngineError | None = None
        self.progress_s: float | None = None  # last sign of life; None while it waits in the child's queue
        self._waiter: asyncio.Future[None] | None = None

    def end(self, error: EngineError | None) -> None:
        if not self.ended:
            self.ended, self.error = True, error
            self.wake()

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Return when there are messages or the end."""
        if not self.messages and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class Worker:
    """A supervised child process that answers requests with streams of messages."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self._tasks: asyncio.TaskGroup | None = None  # holds the one task; opened by `start`, waited for by `close`
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self._ready: asyncio.Future[Any] | None = None  # Any: what the stage says about itself
        self._lost = asyncio.Event()
        self._is_ready = False
        self._detail = "not started"
        self._refusal = ""  # why the stage could not be loaded
        self._heard_s = 0.0
        self._has_answered = True
        self._next_number = 0
        self._open: dict[int, _Request] = {}
        self._by_id: dict[str, _Request] = {}
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """The child, while there is one."""
        return None if self._process is None else self._process.pid

    def health(self) -> Health:
        """Current state, without waiting."""
        return Health(ready=self._is_ready, detail=self._detail)

    async def start(self) -> Any:  # Any: what the stage says about itself
        """Spawn, load, and return the stage's description. Raises `EngineSetupError`; a failure or cancel leaves no process."""
        assert self._tasks is None, f"worker {self.spec.name} was started twice"
        self._detail, self._ready = "starting", asyncio.get_running_loop().create_future()
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self._task = self._tasks.create_task(self._supervise(), name=f"worker {self.spec.name}")
        try:
            return await self._ready
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop within four seconds; open requests end with `EngineNotReady`. Closing twice is fine."""
        self._detail = "closed"
        self._drop(EngineNotReady(f"{self.spec.name} is closing"))
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            if self._task is not None:
                self._task.cancel()
            await tasks.__aexit__(None, None, None)

    async def stream(self, request_id: str, body: Any, priority: int = 0) -> AsyncGenerator[Any, None]:  # Any: the stage's own messages
        """Messages of one request in order. Ends early and silently when `cancel` was called.

        Closing the generator cancels the request. Raises `EngineNotReady` (no process, or it died), `EngineBusy` (full),
        and whatever `EngineError` the stage raised.
        """
        request = self._admit(request_id)
        assert self._process is not None, "admitted without a process"
        self._process.send(Kind.OPEN, request.number, {"priority": priority, "body": body})
        try:
            while True:
                await request.wait()
                while request.messages:
                    yield request.messages.popleft()
                if request.ended and not request.messages:
                    break
            if request.error is not None:
                raise request.error
        finally:
            self._leave(request)

    def cancel(self, request_id: str) -> None:
        """End a request now, without waiting: unread messages are dropped. Unknown and finished ids are ignored."""
        request = self._by_id.get(request_id)
        if request is not None:
            request.messages.clear()
            request.end(None)
            self._leave(request)

    def _admit(self, request_id: str) -> _Request:
        if not self._is_ready:
            raise EngineNotReady(f"{self.spec.name} is {self._detail}")
        if len(self._open) >= self.spec.capacity:
            raise EngineBusy(f"{self.spec.name} has {len(self._open)} open requests, at most {self.spec.capacity} fit")
        if request_id in self._by_id:
            raise EngineError(f"request {request_id!r} is open already")
        self._next_number += 1
        request = _Request(self._next_number, request_id)
        self._open[request.number] = self._by_id[request_id] = request
        return request

    def _leave(self, request: _Request) -> None:
        """The consumer goes. Its place stays taken until the child has let go of the request."""
        if self._by_id.get(request.request_id) is request:
            del self._by_id[request.request_id]
        if request.number in self._open and not request.left:
            request.left = True
            if request.progress_s is not None:  # one that waits in the child's queue leaves at its turn, however late that comes
                request.progress_s = asyncio.get_running_loop().time()
            if self._process is not None:
                self._process.send(Kind.CANCEL, request.number)

    def _drop(self, error: EngineError) -> None:
        """The process is gone: every open request ends."""
        self._is_ready = False
        requests, self._open = list(self._open.values()), {}
        self._by_id.clear()
        for request in requests:
            request.end(error)

    # What the process says, on the event loop.

    def _on_frame(self, frame: Frame) -> None:
        kind, number, body = frame
        self._heard_s, self._has_answered = asyncio.get_running_loop().time(), True
        if kind is Kind.READY:
            self._on_ready(body)
        elif kind is Kind.FAILED:
            self._refusal = str(body)
        elif (request := self._open.get(number)) is not None:
            self._on_request(request, kind, body)

    def _on_ready(self, description: Any) -> None:  # Any: what the stage says about itself
        self._is_ready, self._detail = True, "ready"
        if self._ready is not None and not self._ready.done():
            self._ready.set_result(description)

    def _on_request(self, request: _Request, kind: Kind, body: Any) -> None:  # Any: the stage's own message
        if not request.left or request.progress_s is None:  # a cancelled request may be as busy as it likes, but not for ever
            request.progress_s = self._heard_s
        if kind is Kind.MESSAGE and not request.ended:
            request.messages.append(body)
            request.wake()
            if len(request.messages) > _BACKLOG_MESSAGES:
                request.end(EngineStalled(f"{len(request.messages)} messages of {self.spec.name} were not read"))
                self._leave(request)
        elif kind in (Kind.DONE, Kind.ERROR):
            del self._open[request.number]
            request.end(_error_of(body) if kind is Kind.ERROR else None)

    def _on_lost(self) -> None:
        self._drop(EngineNotReady(f"{self.spec.name} died"))
        self._lost.set()

    # The one task.

    async def _supervise(self) -> None:
        try:
            await self._keep_alive()
        finally:
            if self._ready is not None and not self._ready.done():
                self._ready.set_exception(EngineNotReady(f"{self.spec.name} was closed while it started"))

    async def _keep_alive(self) -> None:
        backoff_s = self.spec.backoff_s
        loop = asyncio.get_running_loop()
        while True:
            born_s = loop.time()
            reason = await self._live_once()
            if self._ready is not None and not self._ready.done():
                self._ready.set_exception(EngineSetupError(f"{self.spec.name}: {reason}"))
                return
            if loop.time() - born_s > self.spec.backoff_max_s:
                backoff_s = self.spec.backoff_s  # it lived long enough to be trusted again
            self.restarts += 1
            self._detail = f"restarting: {reason}"
            log.warning("worker restarts", extra={"worker": self.spec.name, "reason": reason, "backoff_s": backoff_s})
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, self.spec.backoff_max_s)

    async def _live_once(self) -> str:
        """One process from spawn to burial; why it ended."""
        spec = self.spec
        self._lost.clear()
        self._refusal = ""
        try:
            process = await Process.spawn(spec.name, spec.factory, spec.setup, self._on_frame, self._on_lost)
        except OSError as error:
            return f"it cannot be spawned: {error}"
        self._process = process
        try:
            reason = await self._watch(process)
        finally:
            self._drop(EngineNotReady(f"{spec.name} ended"))
            self._process = None
            await process.stop()
        return reason or self._refusal or process.describe_end()

    async def _watch(self, process: Process) -> str:
        """Return when the process is to be buried: why, or "" where it ended by itself."""
        loop = asyncio.get_running_loop()
        started_s = self._heard_s = loop.time()
        self._has_answered = True
        unanswered_s = 0.0  # counted by heartbeats, so that a parent which was held up itself does not kill its workers
        while not await self._wait_lost(self.spec.heartbeat_s):
            now_s = loop.time()
            unanswered_s = 0.0 if self._has_answered else unanswered_s + self.spec.heartbeat_s
            if not self._is_ready and now_s - started_s > self.spec.ready_s:
                process.kill()
                return f"it was not ready within {self.spec.ready_s:g} s"
            if self._is_ready and unanswered_s > self.spec.silence_s:
                process.kill()
                return f"it did not answer for {self.spec.silence_s:g} s"
            if self._end_stalled(now_s):
                process.kill()
                return f"a request made no progress for {self.spec.stall_s:g} s"
            self._has_answered = False  # a flag, not two times: an answer comes within the millisecond that uvloop's clock counts
            process.send(Kind.PING)
        return ""

    async def _wait_lost(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._lost.wait()
        except TimeoutError:
            return False
        return True

    def _end_stalled(self, now_s: float) -> bool:
        stalled = [r for r in self._open.values() if r.progress_s is not None and now_s - r.progress_s > self.spec.stall_s]
        for request in stalled:
            request.end(EngineStalled(f"{self.spec.name} made no progress for {self.spec.stall_s:g} s"))
        return bool(stalled)


def _error_of(body: Any) -> EngineError:  # Any: {kind, message} as engine/worker/jobs.py sends it
    return _ERRORS.get(body["kind"], EngineError)(body["message"])
