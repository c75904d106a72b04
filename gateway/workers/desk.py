"""Where a worker answers its siblings: about its sessions, metrics and tickets. A carried connection is served as if it had come here."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from starlette.websockets import WebSocket

from gateway.capture import Captures
from gateway.codecs.native import NativeCodec
from gateway.connection import Connection
from gateway.sessions import Sessions
from gateway.tickets import MemoryKeeper
from gateway.turn import Parts
from gateway.workers import line
from gateway.workers.line import Broken, Carried, Closed, FindTicket, Frame, Holds, Line, Page, Question, SpendTicket

QUESTION_S = 5.0  # to ask, and to take a short answer; whoever asks gives up after one

log = logging.getLogger("stretto.workers")


class Desk:
    """`page`: what /metrics of this worker alone says."""

    def __init__(
        self,
        parts: Parts,
        sessions: Sessions,
        tickets: MemoryKeeper,
        page: Callable[[], Awaitable[bytes]],
        captures: Captures | None = None,
    ) -> None:
        self._parts, self._sessions, self._tickets, self._page, self._captures = parts, sessions, tickets, page, captures

    async def run(self, path: Path) -> None:
        """Answer there until cancelled."""
        async with asyncio.TaskGroup() as tasks:

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.create_task(self.answer(reader, writer), name="sibling")

            async with await asyncio.start_unix_server(begin, path):
                await asyncio.Event().wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One line, to its end. Whoever says nothing, or does not take a short answer, is let go after `QUESTION_S`."""
        from_it = Line(reader, writer)
        try:
            wish = await self._short_answer(from_it)
            if wish is not None:
                await self._resume(from_it, wish)
        except Broken as broken:
            log.debug("a sibling hung up", extra={"detail": str(broken)})
        except Exception:  # where an answer meets its owner: the others must go on
            log.exception("a sibling could not be answered")
        finally:
            from_it.close()

    async def _short_answer(self, from_it: Line) -> line.Resume | None:
        """Answer what one message answers; what begins a conversation is for the caller. Raises `Broken`."""
        try:
            async with asyncio.timeout(QUESTION_S):
                question: Question = await from_it.receive(Question)  # type: ignore[arg-type]  # a union is no type to mypy
                match question:
                    case line.Resume():
                        return question
                    case Holds(session_id=session_id, rights=rights):
                        await from_it.send(self._sessions.holds(session_id, rights))
                    case Page():
                        await from_it.send(await self._page())
                    case FindTicket(name=name):
                        await from_it.send(await self._tickets.find(name))
                    case SpendTicket(name=name):
                        await from_it.send(await self._tickets.spend(name))
        except TimeoutError as error:
            raise Broken(f"it asked nothing, or took no answer, for {QUESTION_S:.0f} s") from error
        return None

    async def _resume(self, from_it: Line, question: line.Resume) -> None:
        is_here = question.session_id in self._sessions.ids()
        await from_it.send(is_here)
        if not is_here:
            return
        socket = carried_socket(from_it, question)
        settings, metrics = self._parts.settings.session, self._parts.metrics
        codec = NativeCodec(settings.message_bytes, settings.idle_s)
        admission = self._sessions.admission
        admission.connected += 1
        try:
            await socket.accept()
            await Connection(
                socket, codec, self._sessions, settings, metrics, self._parts.now, question.rights, captures=self._captures
            ).serve()
        finally:
            admission.connected -= 1


def carried_socket(from_it: Line, question: line.Resume) -> WebSocket:
    """A client's socket as it looks from here: its first message is the one that brought it."""
    start = {"type": "websocket.receive", "bytes": msgspec.msgpack.encode(question.start)}
    first: deque[dict[str, Any]] = deque([{"type": "websocket.connect"}, start])  # Any: ASGI messages

    async def receive() -> dict[str, Any]:  # Any: ASGI messages
        if first:
            return first.popleft()
        try:
            carried: Frame | Closed = await from_it.receive(Carried)  # type: ignore[arg-type]  # a union is no type to mypy
        except Broken:
            carried = Closed(code=1006)
        if isinstance(carried, Closed):
            return {"type": "websocket.disconnect", "code": carried.code}
        return {"type": "websocket.receive", "bytes": carried.data, "text": carried.text}

    async def send(message: Any) -> None:  # Any: ASGI messages
        try:
            if message["type"] == "websocket.send":
                await from_it.send(Frame(data=message["bytes"]))
            elif message["type"] == "websocket.close":
                await from_it.send(Closed(code=message["code"], reason=message.get("reason") or ""))
        except Broken as error:
            raise OSError("the carrier is gone") from error

    return WebSocket({"type": "websocket", "path": "/v1/voice", "headers": [], "subprotocols": []}, receive, send)
