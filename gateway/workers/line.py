"""What workers say to each other over their Unix sockets: one question and its answer, then, for a carried connection, its frames.

Each message is four bytes of length and msgpack. Bounded by `LARGEST`; whoever is at the other end runs as the same user.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.auth import Rights
from gateway.events import StartSession

LARGEST = 16 * 1024 * 1024  # a page of metrics with vLLM's is 1 MiB
BUFFER_BYTES = 32_768  # as of a client's socket: a slow reader is felt through the carrier
_LENGTH = struct.Struct(">I")

T = TypeVar("T")


class Resume(Struct, frozen=True, kw_only=True, tag="resume"):
    """A client wants this session. Answer: whether it is here; then frames both ways. `start`: its first message."""

    session_id: str
    start: StartSession
    rights: Rights


class Holds(Struct, frozen=True, kw_only=True, tag="holds"):
    """Answer: as `Sessions.holds`."""

    session_id: str
    rights: Rights


class Page(Struct, frozen=True, kw_only=True, tag="page"):
    """What `/metrics` of this worker alone would say. Answer: its bytes."""


class FindTicket(Struct, frozen=True, kw_only=True, tag="find_ticket"):
    """Answer: `KeptTicket`, or None."""

    name: str


class SpendTicket(Struct, frozen=True, kw_only=True, tag="spend_ticket"):
    """Answer: whether it was unused until now."""

    name: str


Question = Resume | Holds | Page | FindTicket | SpendTicket


class Frame(Struct, frozen=True, kw_only=True, tag="frame"):
    """A WebSocket message of a carried connection."""

    data: bytes | None = None
    text: str | None = None


class Closed(Struct, frozen=True, kw_only=True, tag="closed"):
    """The connection is over."""

    code: int
    reason: str = ""


Carried = Frame | Closed


class Broken(Exception):
    """The other worker is gone, or too slow."""


class Line:
    """One connection between two workers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        writer.transport.set_write_buffer_limits(high=BUFFER_BYTES)

    async def send(self, message: object) -> None:
        """Waits while the other end does not read. Raises `Broken`."""
        data = msgspec.msgpack.encode(message)
        try:
            self._writer.write(_LENGTH.pack(len(data)) + data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:  # uvloop's word for a transport that was closed (0.23)
            raise Broken("the other worker is gone") from error

    async def receive(self, kind: type[T]) -> T:
        """Raises `Broken`."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            if length > LARGEST:
                raise Broken(f"a message of {length} bytes; expected at most {LARGEST}")
            return msgspec.msgpack.decode(await self._reader.readexactly(length), type=kind)
        except (OSError, asyncio.IncompleteReadError, msgspec.MsgspecError) as error:
            raise Broken("the other worker is gone") from error

    def close(self) -> None:
        """Say no more."""
        self._writer.close()


async def dialed(path: Path) -> Line:
    """A line to whoever answers at `path`; the caller closes it. Raises `Broken`."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as error:
        raise Broken("nobody answers there") from error
    return Line(reader, writer)


@asynccontextmanager
async def called(path: Path, within_s: float) -> AsyncIterator[Line]:
    """A line to the worker at `path`. Raises `Broken`."""
    try:
        async with asyncio.timeout(within_s):
            line = await dialed(path)
    except TimeoutError as error:
        raise Broken("no worker answers there") from error
    try:
        yield line
    finally:
        line.close()
