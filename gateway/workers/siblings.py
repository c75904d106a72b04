"""What a worker asks the others: for a session that is not its own, for their metrics, for their tickets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.websockets import WebSocketDisconnect

from gateway.auth import Rights
from gateway.errors import Drained
from gateway.events import StartSession
from gateway.workers import line
from gateway.workers.line import Broken, Carried, Closed, Frame, Holds, Line, Question, called
from gateway.workers.worker import Worker

LOOK_S = 1.0  # after a client that does not read
ANSWER_S = 1.0  # of a worker that is alive; one that hangs is passed over

T = TypeVar("T")
Carry = Callable[[Any, float], Awaitable[None]]  # Any: the client's socket, a Starlette WebSocket

log = logging.getLogger("stretto.workers")


class Siblings:
    """The other workers of this machine."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def holder(self, start: StartSession, rights: Rights) -> Carry | None:
        """How to bring a connection to the worker that holds the session it resumes; None where nobody has it."""
        if start.resume is None:
            return None
        question = line.Resume(session_id=start.resume.session_id, start=start, rights=rights)
        for number in self._worker.others:
            stack = contextlib.AsyncExitStack()
            try:
                to_it = await stack.enter_async_context(called(self._worker.socket(number), ANSWER_S))
                if await _answer(to_it, question, bool):
                    return _Carrier(to_it, stack).carry
            except Broken:
                log.debug("worker does not answer", extra={"worker": number})
            await stack.aclose()
        return None

    async def hold(self, session_id: str, rights: Rights) -> bool:
        """Whether one of them has this session, or another one of its ticket's user, open."""
        return any((await self.ask_all(Holds(session_id=session_id, rights=rights), bool)).values())

    async def ask_all(self, question: Question, kind: type[T]) -> dict[int, T]:
        """The answers of those that answer, by number."""
        async with asyncio.TaskGroup() as tasks:
            asked = {
                number: tasks.create_task(self._ask(number, question, kind), name=f"ask worker {number}") for number in self._worker.others
            }
        return {number: answer for number, task in asked.items() if (answer := task.result()) is not None}

    async def _ask(self, number: int, question: Question, kind: type[T]) -> T | None:
        try:
            async with called(self._worker.socket(number), ANSWER_S) as to_it:
                return await _answer(to_it, question, kind)
        except Broken:
            return None


class _Carrier:
    """Carries one client's frames to the worker that has its session, and back."""

    def __init__(self, to_it: Line, stack: contextlib.AsyncExitStack) -> None:
        self._line, self._stack = to_it, stack
        self._now = asyncio.get_running_loop().time
        self._sends_since: float | None = None

    async def carry(self, socket: Any, slow_reader_s: float) -> None:  # Any: as above
        """Until either end is over, or the client has taken nothing for so long."""
        async with self._stack, asyncio.TaskGroup() as tasks:
            up = tasks.create_task(self._up(socket), name="carry up")
            down = tasks.create_task(self._down(socket), name="carry down")
            watch = tasks.create_task(self._watch(slow_reader_s), name="carry watch")
            await asyncio.wait([up, down, watch], return_when=asyncio.FIRST_COMPLETED)
            if not watch.done():
                await asyncio.wait([down], timeout=ANSWER_S)  # the other worker's last word
            for way in (up, down, watch):
                way.cancel()

    async def _watch(self, slow_reader_s: float) -> None:
        """The worker that has the session lets go of a slow reader, but its word for that stands behind what is not read."""
        while self._sends_since is None or self._now() - self._sends_since < slow_reader_s:
            await asyncio.sleep(LOOK_S)

    async def _up(self, socket: Any) -> None:
        with contextlib.suppress(Broken):  # `_down` tells the client, where it is still there
            while True:
                try:
                    message = await socket.receive()
                except RuntimeError:  # closed meanwhile
                    message = {"type": "websocket.disconnect", "code": 1006}
                if message["type"] == "websocket.disconnect":
                    await self._line.send(Closed(code=message.get("code") or 1006))
                    return
                await self._line.send(Frame(data=message.get("bytes"), text=message.get("text")))

    async def _down(self, socket: Any) -> None:
        with contextlib.suppress(RuntimeError, OSError, WebSocketDisconnect):  # the client is gone, or was first to close
            try:
                while True:
                    self._sends_since = None
                    carried: Carried = await self._line.receive(Carried)  # type: ignore[arg-type]  # a union is no type to mypy
                    self._sends_since = self._now()
                    if isinstance(carried, Closed):
                        await socket.close(carried.code, carried.reason)
                        return
                    await socket.send_bytes(carried.data or b"")
            except Broken:  # that worker has died: the client comes back to another one
                await socket.close(Drained.close, "that worker is gone")


async def _answer(to_it: Line, question: Question, kind: type[T]) -> T:
    try:
        async with asyncio.timeout(ANSWER_S):
            await to_it.send(question)
            return await to_it.receive(kind)
    except TimeoutError as error:
        raise Broken("the other worker is too slow") from error
