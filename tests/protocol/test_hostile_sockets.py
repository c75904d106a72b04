"""Sockets that only cost: half handshakes, drips, bombs. They are cut in time, and whoever talks meanwhile is answered."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import zlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.codecs.native import SUBPROTOCOL
from gateway.transport import HEADER_BYTES, _header_part
from tests.protocol.peer import Peer, peer
from tests.protocol.test_floods import BINARY, MASK, n_sockets, opened
from tests.running import Running, gateway

pytestmark = [pytest.mark.timeout(120), pytest.mark.may_block]  # a thousand sockets at once, on a busy machine
N_SOCKETS = 1000
REQUEST_S = 3.0
HALF = b"GET /v1/voice HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
Socket = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway({"STRETTO_SERVER__REQUEST_S": str(REQUEST_S)}) as started:
        yield started


@pytest.fixture
def hasty() -> Iterator[Running]:
    with gateway({"STRETTO_SESSION__HANDSHAKE_S": "1"}) as started:
        yield started


@contextlib.asynccontextmanager
async def many(running: Running, n: int) -> AsyncIterator[list[Socket]]:
    sockets = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(n)]
    try:
        yield sockets
    finally:
        for _, writer in sockets:
            writer.close()


async def is_answered(client: Peer) -> None:
    """A whole turn, while the others do their worst."""
    await client.send(type="text", text="Hello?")
    await client.until("turn.done", status="completed")


async def ended(socket: Socket) -> bytes:
    """Everything the gateway sends until it closes."""
    answer = b""
    with contextlib.suppress(ConnectionError):
        while data := await socket[0].read(65536):
            answer += data
    return answer


async def until_alone(running: Running, before: int) -> None:
    """Wait until the gateway holds no more sockets than before."""
    while n_sockets(running.process.pid) > before:
        await asyncio.sleep(0.1)


def test_bytes_behind_the_headers_are_no_headers() -> None:
    request = b"POST / HTTP/1.1\r\nX: y\r\n\r\n" + b"b" * 100
    size = request.index(b"\r\n\r\n") + 4
    for cut in range(1, len(request)):
        first, second = request[:cut], request[cut:]
        n_bytes = _header_part(b"", first) + (_header_part(first[-3:], second) if cut < size else 0)
        assert n_bytes == size


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the gateway's open sockets in /proc")
async def test_a_thousand_sockets_that_never_finish_the_handshake_are_cut_in_time(running: Running) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client:
        before = n_sockets(running.process.pid)
        async with many(running, N_SOCKETS) as sockets:
            for _, writer in sockets:
                writer.write(HALF)
            await is_answered(client)
            assert not any(await asyncio.gather(*map(ended, sockets)))
        await until_alone(running, before)
        await is_answered(client)


async def test_a_thousand_that_send_a_byte_a_second_are_cut_in_time(running: Running) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client, many(running, N_SOCKETS) as sockets:
        for _, writer in sockets:
            writer.write(HALF)
        ends = asyncio.gather(*map(ended, sockets))
        n_bytes = 0
        while not ends.done():
            for _, writer in sockets:
                writer.write(b"x")
            n_bytes += 1
            await is_answered(client)
            await asyncio.wait([ends], timeout=1)
        assert not any(await ends)
        assert n_bytes > 1, "they were dripping"


async def test_a_client_that_drips_into_its_first_frame_keeps_no_place(hasty: Running) -> None:
    reader, writer = await opened(hasty)
    frame = bytes([0x80 | BINARY, 0x80 | 100]) + MASK + bytes(100)
    ending = asyncio.ensure_future(ended((reader, writer)))
    for byte in frame:
        if ending.done():
            break
        with contextlib.suppress(ConnectionError):
            writer.write(bytes([byte]))
        await asyncio.wait([ending], timeout=0.5)
    assert b"handshake_timeout" in await ending
    writer.close()


@pytest.mark.parametrize(
    "bomb",
    [b"X-Bomb: " + b"x" * (1 << 20), b"X: y\r\n" * (1 << 18), b"Cookie: " + b"a=b; " * (1 << 18)],
    ids=["one long header", "many headers", "cookies"],
)
async def test_a_header_bomb_is_refused_after_its_first_kilobytes(running: Running, bomb: bytes) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + bomb)
        answer = await ended((reader, writer))
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 "), "cut while we were still sending, or told"
        await is_answered(client)
        writer.close()


async def test_headers_under_the_bound_are_answered_and_over_it_told(running: Running) -> None:
    for n_bytes, status in ((HEADER_BYTES - 200, b"200"), (HEADER_BYTES + 1, b"431")):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: " + b"x" * n_bytes + b"\r\n\r\n")
        assert (await ended((reader, writer))).startswith(b"HTTP/1.1 " + status)
        writer.close()


async def test_a_body_bomb_is_refused_after_its_first_kilobytes(running: Running) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    piece = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    writer.write(b"POST /v1/tickets HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + piece * 256)
    answer = await ended((reader, writer))
    assert answer == b"" or b" 400 " in answer.split(b"\r\n")[0]
    writer.close()


async def test_compression_is_never_agreed_to_and_a_compressed_frame_bomb_ends_its_connection_alone(running: Running) -> None:
    async with peer(running.voice_url, start={"output": "text"}, compression="deflate") as client:
        assert client.socket.protocol.extensions == [], "offered, and not taken"
        reader, writer = await offering_deflate(running)
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        bomb = packer.compress(b"\0" * (64 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH)
        assert len(bomb) < 70_000, "64 MiB in one frame"
        body = bomb[:65_000]
        masked = bytes(byte ^ MASK[n % 4] for n, byte in enumerate(body))
        writer.write(bytes([0x80 | 0x40 | BINARY, 0x80 | 126]) + len(body).to_bytes(2, "big") + MASK + masked)  # RSV1: compressed
        answer = await ended((reader, writer))
        assert answer == b"" or (1002).to_bytes(2, "big") in answer[:8], "a protocol error: nothing was unpacked"
        await is_answered(client)
        writer.close()


async def offering_deflate(running: Running) -> Socket:
    """A raw socket after a handshake that offers compression."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = ["GET /v1/voice HTTP/1.1", "Host: localhost", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"]
    lines += [f"Sec-WebSocket-Key: {key}", f"Sec-WebSocket-Protocol: {SUBPROTOCOL}", "Sec-WebSocket-Extensions: permessage-deflate"]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert b"extensions" not in head.lower()
    return reader, writer


async def test_a_message_that_unpacks_to_far_more_than_it_is_has_a_bound(running: Running) -> None:
    nested = b"\x91" * 60_000 + b"\xc0"  # arrays in arrays
    wide = b"\xdd\x7f\xff\xff\xff"  # an array that says it has two thousand million elements
    async with peer(running.voice_url, start={"output": "text"}) as client:
        long = msgspec.msgpack.encode({"type": "text", "text": "x" * 40_000})
        for bomb in (nested, wide, b"\xdf\x7f\xff\xff\xff", b"\xc6\x7f\xff\xff\xff", long):
            await client.raw(bomb)
            assert (await client.receive())["code"] in ("bad_message", "text_too_long")
        await is_answered(client)
