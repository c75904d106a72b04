"""Requests that are right, wrong and nearly right, at every address: an answer or a closed socket, and never a fault of ours."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections.abc import Iterator

import pytest

from tests.protocol.peer import peer
from tests.protocol.test_guard import DOORS
from tests.running import Running, gateway

pytestmark = [pytest.mark.timeout(120), pytest.mark.may_block]  # starts a gateway
N_REQUESTS = 900
AT_ONCE = 30
EXPECTED = {b"200", b"400", b"401", b"404"}
STRANGE_PATHS = ["/web/%ff", "/web/" + "a" * 3000, "*", "//", "/v1/voice?model=%00", "/v1/realtime?model=gpt-realtime&model=x"]
PATHS = [*sorted({path for _, path in DOORS}), *STRANGE_PATHS]
METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE", "CONNECT", "get", "\x00"]
HEADERS = [
    "Authorization: Bearer alpha",
    "Authorization: Bearer ",
    "Authorization: Bearer \xff\xfe",
    "Authorization: Basic YTpi",
    "api-key: alpha",
    "Authorization: Bearer tkt_x",
    "Authorization: Bearer ek_x",
    "Origin: null",
    "Origin: http://localhost",
    "Origin: \xe9",
    "X-Forwarded-For: 1.2.3.4, ,x",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Connection: close",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Version: 99",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Protocol: stretto.msgpack.v1, stretto-ticket.tkt_x",
    "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.alpha",
    "Sec-WebSocket-Protocol: , ,",
    'Sec-WebSocket-Extensions: permessage-deflate; x="',
    "traceparent: 00-zz",
    "Expect: 100-continue",
    "Range: bytes=5-1",
    'If-None-Match: "',
    "Accept-Encoding: gzip",
    "Content-Length: -1",
    "Content-Length: x",
    "Transfer-Encoding: chunked, chunked",
    "Cookie: " + "a=b;" * 500,
    "Content-Type: application/json",
    "no colon here",
    ": empty",
    "Host: localhost",
]
BODIES = [
    b"",
    b"{}",
    b'{"ttl_s": 5}',
    b'{"user": "\xff"}',
    b"[" * 4000,
    b'{"session": {"type": "realtime", "audio": {"output": {"voice": 5}}}}',
    b"\0" * 300,
]


@pytest.fixture
def keyed() -> Iterator[Running]:
    with gateway({"STRETTO_KEYS": "alpha", "STRETTO_SERVER__FAILED_KEYS_PER_MIN": "100000"}) as started:
        yield started


def made(chance: random.Random) -> bytes:
    """One request, or something like it."""
    body = chance.choice(BODIES)
    lines = [f"{chance.choice(METHODS[:2] * 4 + METHODS)} {chance.choice(PATHS)} HTTP/1.1", "Host: localhost"]
    lines += chance.sample(HEADERS, chance.randrange(6))
    if chance.random() < 0.8:
        lines.append(f"Content-Length: {len(body)}")
    data = bytearray("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


async def answered(running: Running, data: bytes, within_s: float) -> bytes:
    """What comes in time, or until the socket ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    answer = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(within_s):
            writer.write(data)
            writer.write_eof()
            while piece := await reader.read(65536):
                answer += piece
    writer.close()
    return answer


async def test_no_request_is_a_fault_of_ours(keyed: Running) -> None:
    chance = random.Random(5)
    statuses: dict[bytes, int] = {}
    async with peer(keyed.voice_url, key="alpha", start={"output": "text"}) as client:
        for burst in range(2 * N_REQUESTS // AT_ONCE):
            if burst >= N_REQUESTS // AT_ONCE and set(statuses) >= EXPECTED:
                break
            within_s = 0.25 if burst < N_REQUESTS // AT_ONCE else 2.0  # a busy machine has answered too few
            requests = [made(chance) for _ in range(AT_ONCE)]
            for request, answer in zip(requests, await asyncio.gather(*(answered(keyed, r, within_s) for r in requests)), strict=True):
                found = re.match(rb"HTTP/1.1 (\d+)", answer)
                status = found[1] if found else b"closed"
                statuses[status] = statuses.get(status, 0) + 1
                assert not status.startswith(b"5"), f"{request!r} was answered {answer[:300]!r}"
        await client.send(type="text", text="Hello?")
        await client.until("turn.done", status="completed")
    assert set(statuses) >= EXPECTED, "both right and wrong ones came through"
    assert not [line for line in keyed.lines if "Traceback" in line or '"level": "error"' in line]
