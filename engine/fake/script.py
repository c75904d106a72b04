"""What a scripted engine does and when: tokens, faults, and the life of an engine with its open requests."""

from __future__ import annotations

import asyncio
import re
import zlib
from collections import deque
from typing import Literal

from msgspec import Struct

from engine.api import EngineError, EngineNotReady, Health, ToolCall

N_RECORDS = 64  # of each kind: more than a test asks for, and few enough that a load soon stops growing

_TOKEN = re.compile(r" ?[^\W\d_\u2e80-\ud7ff\uf900-\ufaff]{1,6}| ?\d{1,3}|[\u2e80-\ud7ff\uf900-\ufaff]{1,2}| ?[^\w\s]|\s|.", re.DOTALL)


def tokenize(text: str) -> tuple[str, ...]:
    """Pieces of about the size of a model's tokens; joined they are `text`.

    A word with its leading space (long words in pieces of six), up to three digits, one or two wide characters, one mark.
    """
    return tuple(_TOKEN.findall(text))


def token_id(token: str) -> int:
    """A stable id, the same in every process; 0 to 999 stay free for control tokens."""
    return 1000 + zlib.crc32(token.encode("utf-8", "surrogatepass")) % 100_000


class Fault(Struct, frozen=True, kw_only=True):
    """What goes wrong before the `at`-th delta or chunk (0 is the first): an error, or silence without end (`error` None)."""

    at: int
    error: type[EngineError] | None = EngineError


class Script(Struct, frozen=True, kw_only=True):
    """One reply: its deltas in order. Timings that are None are the model's."""

    tokens: tuple[str, ...]
    ttft_ms: float | None = None
    itl_ms: float | None = None
    fault: Fault | None = None
    tool_calls: tuple[ToolCall, ...] = ()


class OpenRequest:
    """The one wait of an open request; it ends by its timer, by `cancel`, or by the engine's death."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.started_s = self._loop.time()
        self.end: Literal["cancelled", "dead"] | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def wait_until(self, due_s: float | None) -> None:
        """Return at `due_s` (None: never), or as soon as `stop` was called."""
        if self.end is not None or (due_s is not None and due_s <= self._loop.time()):
            return
        self._waiter = self._loop.create_future()
        timer = None if due_s is None else self._loop.call_at(due_s, _release, self._waiter)
        try:
            await self._waiter
        finally:
            if timer is not None:
                timer.cancel()

    def stop(self, end: Literal["cancelled", "dead"]) -> None:
        if self.end is None:
            self.end = end
        if self._waiter is not None:
            _release(self._waiter)

    async def meet(self, fault: Fault | None, index: int) -> None:
        """Fail or fall silent when `fault` is due at `index`."""
        if fault is None or fault.at != index or self.end is not None:
            return
        if fault.error is not None:
            raise fault.error(f"scripted failure before item {index}")
        await self.wait_until(None)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Scripted:
    """Life and death of a scripted engine, and its open requests."""

    def __init__(self) -> None:
        self.abandoned: deque[str] = deque(maxlen=N_RECORDS)  # streams closed, or their consumer cancelled, before the end
        self._open: dict[str, OpenRequest] = {}
        self._health = Health(ready=False, detail="not started")

    @property
    def n_open(self) -> int:
        """Requests now being worked on."""
        return len(self._open)

    async def start(self) -> None:
        self._health = Health(ready=True, detail="fake")

    async def close(self) -> None:
        self.die("closed")

    def die(self, detail: str = "died") -> None:
        """As a killed process: not ready, and every open request ends with `EngineNotReady`."""
        self._health = Health(ready=False, detail=detail)
        for request in self._open.values():
            request.stop("dead")

    def health(self) -> Health:
        return self._health

    def _admit(self, request_id: str) -> OpenRequest:
        self._check_ready()
        if request_id in self._open:
            raise EngineError(f"request {request_id} is open already")
        request = self._open[request_id] = OpenRequest()
        return request

    def _is_stopped(self, request: OpenRequest) -> bool:
        if request.end == "dead":
            raise EngineNotReady(self._health.detail)
        return request.end is not None

    def _check_ready(self) -> None:
        if not self._health.ready:
            raise EngineNotReady(self._health.detail)
