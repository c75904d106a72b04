"""A client that may say anything: raw frames in and out, decoded only for the test's eyes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websockets_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.codecs.native import SUBPROTOCOL

OPEN_S = 60.0  # two busy cores; websockets gives up after ten
connect = partial(websockets_connect, open_timeout=OPEN_S)
Frame = dict[str, Any]  # Any: whatever the gateway sent


class Peer:
    """One socket of the native protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, **message: Any) -> None:  # Any: right or wrong values
        await self.raw(msgspec.msgpack.encode(message))

    async def raw(self, data: bytes | str) -> None:
        await self.socket.send(data)

    async def receive(self) -> Frame:
        data = await self.socket.recv()
        assert isinstance(data, bytes), "the native protocol is binary"
        frame = msgspec.msgpack.decode(data)
        assert isinstance(frame, dict)
        return frame

    async def until(self, kind: str, **wanted: Any) -> Frame:
        """The next frame of a kind with the given values."""
        while True:
            frame = await self.receive()
            if frame["type"] == kind and all(frame.get(name) == value for name, value in wanted.items()):
                return frame

    async def frames_until(self, kind: str) -> list[Frame]:
        """Everything up to and with the next frame of a kind."""
        frames = [await self.receive()]
        while frames[-1]["type"] != kind:
            frames.append(await self.receive())
        return frames

    async def closed(self) -> tuple[int, list[Frame]]:
        """Read to the end: the close code, and what came before it."""
        frames: list[Frame] = []
        try:
            while True:
                frames.append(await self.receive())
        except ConnectionClosed as end:
            return (end.rcvd.code if end.rcvd else 1006), frames


@asynccontextmanager
async def peer(
    url: str, *, start: Frame | None = None, key: str | None = None, headers: dict[str, str] | None = None, **options: Any
) -> AsyncIterator[Peer]:
    """A connected peer; with `start` (a map of session.start's fields) its session is open."""
    headers = {**(headers or {}), **({"Authorization": f"Bearer {key}"} if key else {})}
    async with connect(url, subprotocols=[SUBPROTOCOL], additional_headers=headers, max_size=None, max_queue=None, **options) as socket:  # type: ignore[list-item]
        made = Peer(socket)
        if start is not None:
            await made.send(type="session.start", **start)
            await made.until("session.ready")
        yield made


async def let_in(url: str, **options: Any) -> None:  # Any: as above
    """Come in and go, as soon as there is a place: the gateway hears of those who leave in its own time."""
    async with asyncio.timeout(OPEN_S):
        while True:
            try:
                async with peer(url, start={}, **options):
                    return
            except InvalidStatus:
                await asyncio.sleep(0.05)
