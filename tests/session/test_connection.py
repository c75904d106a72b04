"""One socket and its session: what ends the socket ends nothing else, and no end of it is an error of ours."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
import pytest
from starlette.websockets import WebSocket

from gateway.codecs.native import SUBPROTOCOL, NativeCodec
from gateway.connection import Connection
from gateway.errors import Overloaded
from gateway.events import Resume, StartSession
from gateway.server.doors import _deny
from tests.session.stage import Stage, stage

REPLY = "One two three four five six seven. Eight nine ten eleven twelve."
Message = dict[str, Any]  # Any: of ASGI


class Line:
    """The client's end of an ASGI socket. After `n_taken` messages it takes nothing until our close, and then turns out to be gone."""

    def __init__(self, n_taken: int | None = None) -> None:
        self.sent: list[Message] = []
        self.closed: Message | None = None
        self._left = n_taken
        self._coming: deque[Message] = deque([{"type": "websocket.connect"}])
        self._came = asyncio.Event()

    def say(self, **fields: Any) -> None:  # Any: a message's values
        self._coming.append({"type": "websocket.receive", "bytes": msgspec.msgpack.encode(fields)})
        self._came.set()

    async def receive(self) -> Message:
        while not self._coming:
            self._came.clear()
            await self._came.wait()
        return self._coming.popleft()

    async def send(self, message: Any) -> None:  # Any: as above
        if message["type"] == "websocket.close":
            self.closed = message
            if self._left is not None:
                raise OSError("the peer is gone")
        elif self._left is not None and len(self.sent) >= self._left:
            await asyncio.Event().wait()
        self.sent.append(message)

    def types(self) -> list[str]:
        return [msgspec.msgpack.decode(message["bytes"])["type"] for message in self.sent if message["type"] == "websocket.send"]


async def served(scene: Stage, line: Line) -> None:
    socket = WebSocket({"type": "websocket", "path": "/v1/voice", "headers": [], "subprotocols": []}, line.receive, line.send)
    await socket.accept()
    settings = scene.parts.settings.session
    codec = NativeCodec(settings.message_bytes, settings.idle_s)
    await Connection(socket, codec, scene.sessions, settings, scene.parts.metrics, scene.parts.now).serve()


async def begun(scene: Stage) -> str:
    """The id of the session that was opened last."""
    async with asyncio.timeout(5):
        while len(scene.sessions) < 2:
            await asyncio.sleep(0.01)
    return scene.sessions.ids()[-1]


async def test_a_slow_reader_that_vanishes_while_it_is_told_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async with stage([REPLY], settings={"session": {"slow_reader_s": 3.0}}) as scene:
        line = Line(n_taken=4)
        line.say(type="session.start")
        line.say(type="text", text="Count.")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(served(scene, line), name="serve")
            session_id = await begun(scene)
        assert line.closed is not None
        assert line.closed["code"] == 4003
        assert session_id in scene.sessions.ids(), "the client may come back for it"
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_page_that_does_not_wait_for_its_refusal_is_no_error_of_ours() -> None:
    async def gone(message: Any) -> None:  # Any: as above
        if message["type"] != "websocket.accept":
            raise OSError("the peer is gone")

    headers = [(b"origin", b"http://localhost"), (b"host", b"localhost")]
    scope = {"type": "websocket", "path": "/v1/voice", "headers": headers, "subprotocols": [SUBPROTOCOL]}
    await _deny(WebSocket(scope, Line().receive, gone), Overloaded("All places are taken."))


async def test_what_an_old_socket_still_brings_is_not_taken_once_a_newer_one_serves() -> None:
    async with stage([REPLY]) as scene:
        line = Line()
        line.say(type="session.start", id="hello")
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(served(scene, line), name="serve")
            session_id = await begun(scene)
            while "session.ready" not in line.types():
                await asyncio.sleep(0.01)
            token = next(msgspec.msgpack.decode(message["bytes"]) for message in line.sent if "bytes" in message)["resume_token"]
            resume = Resume(session_id=session_id, token=token, last_seq=0)
            line.say(type="text", text="Too late.")  # in the same moment
            session, _, ready = await scene.sessions.open(StartSession(resume=resume))
        assert ready.resumed
        assert (session.n_turns, session.has_spoken) == (0, False)
        again, _, _ = await scene.sessions.open(StartSession(resume=resume))
        assert again is session, "the answer was lost: the token is good once more"
