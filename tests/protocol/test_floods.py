"""Peers that send without end or take nothing: they lose their socket, memory stays bounded, the others do not notice."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway.codecs.native import SUBPROTOCOL
from gateway.errors import SlowReader
from gateway.events import SessionUpdated
from gateway.metrics import Metrics
from gateway.outbox import REPLAY_BYTES, WAITING_BYTES, Outbox
from tests.protocol.peer import let_in, peer
from tests.running import Running, gateway

pytestmark = pytest.mark.may_block  # most start a gateway, and a busy machine takes seconds for that
MASK = b"\x01\x02\x03\x04"
PING, BINARY, CONTINUED, FINAL = 9, 2, 0, 0x80


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway({"STRETTO_SESSION__SLOW_READER_S": "1"}) as started:
        yield started


def frame(opcode: int, data: bytes, *, is_final: bool = True) -> bytes:
    """A masked frame of a client."""
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    masked = bytes(byte ^ MASK[n % 4] for n, byte in enumerate(data))
    return bytes([opcode | (FINAL if is_final else 0)]) + size + MASK + masked


async def opened(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A raw socket after its handshake."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, limit=2048)
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        "GET /v1/voice HTTP/1.1",
        f"Host: 127.0.0.1:{running.port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key}",
        f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
    ]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    return reader, writer


@pytest.mark.parametrize(
    ("flood", "told"),
    [
        (frame(BINARY, b"", is_final=False) + frame(CONTINUED, b"", is_final=False) * 50_000, b"fragments"),
        (frame(PING, b"") * 50_000, b"pings"),
    ],
)
async def test_a_flood_of_empty_frames_ends_its_connection_alone(running: Running, flood: bytes, told: bytes) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as other:
        reader, writer = await opened(running)
        writer.write(flood)
        answer = b""
        try:
            async with asyncio.timeout(60):
                while data := await reader.read(4096):
                    answer += data
        except ConnectionError:
            pass  # reset: we were still sending
        else:
            assert told in answer
        finally:
            writer.close()
        await other.send(type="ping", t=1.0)
        await other.until("pong")


def n_sockets(pid: int) -> int:
    found = 0
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(path).startswith("socket:")
    return found


async def quiet_sockets(pid: int) -> int:
    """How many there are once those of earlier tests are gone."""
    looks = [n_sockets(pid)]
    while len(looks) < 5 or len(set(looks[-5:])) > 1:
        await asyncio.sleep(0.05)
        looks.append(n_sockets(pid))
    return looks[-1]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts the gateway's open sockets in /proc")
async def test_a_peer_that_never_reads_loses_its_socket(running: Running) -> None:
    before = await quiet_sockets(running.process.pid)
    reader, writer = await opened(running)
    try:
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # asyncio's streams have no public way not to read
        writer.write(frame(BINARY, msgspec.msgpack.encode({"type": "session.start"})))
        writer.write(frame(BINARY, msgspec.msgpack.encode({"type": "text", "text": "Talk."})))
        for n in range(60):  # each is echoed: 4 KB that nobody takes
            echoed = {"type": "session.update", "id": str(n), "instructions": "x" * 4000}
            writer.write(frame(BINARY, msgspec.msgpack.encode(echoed)))
        assert n_sockets(running.process.pid) > before
        async with asyncio.timeout(60):
            while n_sockets(running.process.pid) > before:
                await asyncio.sleep(0.1)
    finally:
        writer.close()


async def test_a_refused_handshake_is_no_error_of_ours() -> None:
    with gateway({"STRETTO_KEYS": "alpha"}) as keyed:
        with pytest.raises(Exception, match="401"):
            async with peer(keyed.voice_url):
                pass
        reader, writer = await asyncio.open_connection("127.0.0.1", keyed.port)
        writer.write(b"\x16\x03\x01 no HTTP\r\n\r\n")
        await reader.read()
        writer.close()
        keyed.stop()
        assert [line for line in keyed.lines if '"level": "error"' in line or "Invalid HTTP" in line] == []


def told(n_characters: int) -> SessionUpdated:
    return SessionUpdated(
        instructions="x" * n_characters, language="en", voice="v", output="audio", allow_barge_in=True, turn_detection="auto"
    )


async def test_frames_kept_for_a_resume_are_bounded_in_bytes_whatever_they_hold() -> None:
    outbox = Outbox(Metrics(CollectorRegistry()), asyncio.get_running_loop().time, 10)
    for _ in range(100):
        outbox.put(told(30_000))
        await outbox.next()
    assert not outbox.rewind(100 - REPLAY_BYTES // 30_000 - 1)
    assert outbox.rewind(100 - REPLAY_BYTES // 30_300)


async def test_echoes_that_nobody_reads_are_bounded_in_bytes() -> None:
    outbox = Outbox(Metrics(CollectorRegistry()), asyncio.get_running_loop().time, 10)
    overflows: list[SlowReader] = []
    outbox.on_overflow = overflows.append
    for _ in range(WAITING_BYTES // 30_000 + 2):
        outbox.put(told(30_000))
    n_taken = len(list(outbox.waiting()))
    assert WAITING_BYTES // 31_000 <= n_taken <= WAITING_BYTES // 30_000
    assert len(overflows) == 1, "told once"
    while outbox.waiting():
        await outbox.next()
    outbox.put(told(30_000))
    assert not outbox.waiting(), "what comes behind a lost frame is lost, too"


@pytest.mark.parametrize(
    ("data", "code"), [(b"\xc1" * 8, 1008), ("text", 1003), (b"x" * 70_000, 1009)], ids=["ten bad messages", "wrong kind", "too big"]
)
async def test_a_peer_that_breaks_the_protocol_keeps_no_place(data: bytes | str, code: int) -> None:
    with gateway({"STRETTO_SESSION__MAX_SESSIONS": "1"}) as small:
        async with peer(small.voice_url, start={}) as client:
            for _ in range(10 if code == 1008 else 1):
                await client.raw(data)
            assert (await client.closed())[0] == code
        await let_in(small.voice_url)
