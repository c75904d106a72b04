"""Whatever a peer sends: a clear answer, and the others talk on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from tests.protocol.peer import Frame, Peer, peer
from tests.running import Running, gateway

QUICK = {
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "1",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "1",
    "STRETTO_FAKE__REPLY": "Yes. No.",
}
HASTY = {"STRETTO_SESSION__HANDSHAKE_S": "1", "STRETTO_SESSION__IDLE_S": "1", "STRETTO_SERVER__REQUEST_S": "1"}
TRIES = 20


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway(QUICK | {"STRETTO_SESSION__SLOW_READER_S": "2"}) as started:
        yield started


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """One that waits for nobody; whoever means to talk there may be too slow on a busy machine."""
    with gateway(QUICK | HASTY) as started:
        yield started


@pytest_asyncio.fixture
async def bystander(running: Running) -> AsyncIterator[Peer]:
    """Somebody else's session, which must not notice anything."""
    async with peer(running.voice_url, start={"output": "text"}) as other:
        yield other
        await other.send(type="text", text="Still there?", id="check")
        assert (await other.until("turn.done"))["status"] == "completed"


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    ("data", "code", "told"),
    [
        (b"\xc1", "bad_message", "not msgpack"),
        (b"", "bad_message", "not msgpack"),
        (b"GET / HTTP/1.1\r\n\r\n", "bad_message", "not msgpack"),
        (packed([1, 2]), "bad_message", "an array"),
        (packed({"text": "hello"}), "bad_message", "`type` is missing"),
        (packed({"type": 7}), "bad_message", "`type` is an integer"),
        (packed({"type": "text", "text": 7, "id": "x"}), "bad_message", "Expected `str`, got `int`"),
        (packed({"type": "ping", "id": "x" * 129}), "bad_message", "at most 128"),
        (packed({"type": "text", "id": "x"}), "bad_message", "missing required field `text`"),
        (packed({"type": "ping", "t": [[[[[[[[[[1]]]]]]]]]]}), "bad_message", "nested deeper"),
        (b"\x91" * 60_000, "bad_message", ""),
        (b"\x82\xa4type\xa4text\xa4text\xa2\xff\xfe", "bad_message", "not msgpack"),
        (packed({"type": "text", "text": msgspec.msgpack.Ext(1, b"x")}), "bad_message", "extension"),
        (packed({"type": "fly", "id": "x"}), "unknown_type", "'fly'"),
        (packed({"type": "text", "text": "", "id": "x"}), "text_empty", "visible"),
        (packed({"type": "text", "text": " \n\t\u200b", "id": "x"}), "text_empty", "visible"),
        (packed({"type": "text", "text": "a" * 40_000, "id": "x"}), "text_too_long", "40000 bytes"),
        (packed({"type": "session.start", "id": "x"}), "already_started", "started"),
        (packed({"type": "audio", "data": b"\0\0", "pts_ms": 0, "id": "x"}), "not_available", "no audio in"),
        (packed({"type": "commit", "id": "x"}), "not_available", "no audio in"),
        (packed({"type": "tool.result", "call_id": "c", "output": "", "id": "x"}), "unknown_call", "'c'"),
        (packed({"type": "item.delete", "item_id": "nobody", "id": "x"}), "unknown_item", "nobody"),
        (packed({"type": "item.add", "role": "robot", "text": "a", "id": "x"}), "bad_message", "robot"),
        (packed({"type": "session.update", "voice": "../../etc/passwd", "id": "x"}), "unknown_voice", "expected one of"),
        (packed({"type": "playout", "turn": 99, "played_ms": 1, "id": "x"}), "unknown_turn", "99"),
    ],
)
async def test_a_bad_message_is_answered_and_the_session_goes_on(
    running: Running, bystander: Peer, data: bytes, code: str, told: str
) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client:
        await client.raw(data)
        error = await client.until("error")
        assert error["code"] == code
        assert told in error["message"]
        assert error.get("ref") == ("x" if b"\xa2id\xa1x" in data else None)
        await client.send(type="text", text="Hello?")
        assert (await client.until("turn.done"))["status"] == "completed"


@pytest.mark.parametrize(
    ("start", "code"),
    [
        ({"voice": "nobody"}, "unknown_voice"),
        ({"voice": "../../secret"}, "unknown_voice"),
        ({"persona": "nobody"}, "unknown_persona"),
        ({"audio_out": {"codec": "mp3", "rate_hz": 44_000}}, "unsupported_codec"),
        ({"audio_out": {"codec": "pcm16", "rate_hz": 7}}, "unsupported_codec"),
        ({"audio_in": {"codec": "opus"}}, "not_available"),
        ({"language": "e"}, "bad_message"),
        ({"history": [{"role": "user", "text": " "}]}, "text_empty"),
        ({"history": "none"}, "bad_message"),
    ],
)
async def test_a_start_that_cannot_be_waits_for_a_better_one(running: Running, start: Frame, code: str) -> None:
    async with peer(running.voice_url) as client:
        await client.send(type="session.start", id="s", **start)
        error = await client.receive()
        assert (error["type"], error["code"], error["ref"]) == ("error", code, "s")
        assert "seq" not in error
        await client.send(type="session.start", id="t")
        ready = await client.receive()
        assert (ready["type"], ready["ref"]) == ("session.ready", "t")
        assert "seq" not in ready


async def test_a_message_before_the_start_is_told(running: Running) -> None:
    async with peer(running.voice_url) as client:
        await client.send(type="text", text="Hello?", id="x")
        error = await client.receive()
        assert (error["code"], error["ref"]) == ("not_started", "x")


async def test_no_start_in_time_ends_the_connection(hasty: Running) -> None:
    async with peer(hasty.voice_url) as client:
        code, frames = await client.closed()
        assert code == 1008
        assert frames[-1]["code"] == "handshake_timeout"


async def test_a_silent_client_is_closed_as_idle(hasty: Running) -> None:
    for _ in range(TRIES):
        async with peer(hasty.voice_url) as client:
            with contextlib.suppress(ConnectionClosed):
                await client.send(type="session.start")
            code, frames = await client.closed()
            if frames[0]["type"] == "session.ready":
                assert (code, frames[-1]["code"]) == (4002, "idle")
                return
    pytest.fail("never started in time")


async def test_a_text_frame_is_the_wrong_kind(running: Running, bystander: Peer) -> None:
    async with peer(running.voice_url, start={}) as client:
        await client.raw('{"type": "text"}')
        assert (await client.closed())[0] == 1003


async def test_ten_megabytes_are_too_big(running: Running, bystander: Peer) -> None:
    async with peer(running.voice_url, start={}) as client:
        with pytest.raises(Exception, match="1009"):  # noqa: PT012 - the close may come while we still send
            await client.raw(b"\0" * 10_000_000)
            await client.receive()


async def test_ten_bad_messages_in_a_minute_end_the_connection(running: Running, bystander: Peer) -> None:
    async with peer(running.voice_url, start={}) as client:
        for _ in range(10):
            await client.raw(b"\xc1")
        code, frames = await client.closed()
        assert code == 1008
        assert [frame["code"] for frame in frames[-2:]] == ["bad_message", "too_many_errors"]


async def test_too_many_messages_are_told_and_dropped(running: Running) -> None:
    async with peer(running.voice_url, start={}) as client:
        for burst in range(TRIES):  # a gateway that has no core for a second is asked too slowly
            for number in range(105):
                await client.send(type="ping", t=number, id=f"p{burst}-{number}")
            error = await client.receive()
            while error["type"] != "error" and error.get("ref") != f"p{burst}-104":
                error = await client.receive()
            if error["type"] == "error":
                break
        assert (error["code"], error["retryable"]) == ("rate_limited", True)
        assert error["ref"].startswith("p")


async def test_speech_that_piled_up_in_the_network_is_taken_slower_and_not_refused(running: Running) -> None:
    async with peer(running.voice_url, start={}) as client:
        for number in range(150):
            await client.send(type="audio", data=bytes(640), pts_ms=20 * number)
        await client.send(type="ping", id="p")
        codes = set()
        while (frame := await client.receive())["type"] != "pong":
            codes.add(frame["code"])
        assert codes == {"not_available"}  # nobody listens here; where somebody does, nothing is said at all


def metrics(running: Running) -> str:
    with urllib.request.urlopen(f"{running.http_url}/metrics", timeout=60) as answer:
        return str(answer.read(), "utf-8")


async def test_a_reader_that_never_reads_is_closed_and_counted(running: Running) -> None:
    async with peer(running.voice_url, start={"audio_out": {"codec": "pcm16", "rate_hz": 48_000}}) as client:
        transport = client.socket.transport
        transport.pause_reading()
        for _ in range(3):
            await client.send(type="say", text="A long text that takes its time. " * 60)
        async with asyncio.timeout(60):
            while "stretto_slow_readers_total 0.0" in await asyncio.to_thread(metrics, running):
                await asyncio.sleep(0.1)
        transport.resume_reading()


def test_half_a_request_is_not_waited_for(hasty: Running) -> None:
    with socket.create_connection(("127.0.0.1", hasty.port), timeout=60) as half:
        half.sendall(b"GET /v1/voice HTTP/1.1\r\nHost: localhost\r\n")
        assert half.recv(100) == b""


def test_a_header_bomb_is_refused(running: Running) -> None:
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as bomb:
        bomb.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError):  # noqa: PT012 - whichever call notices the reset
            for _ in range(1000):
                bomb.sendall(b"X-Filler: " + b"a" * 3000 + b"\r\n")
            bomb.recv(1)
            raise ConnectionResetError


async def test_a_peer_that_vanishes_leaves_its_session_for_a_resume(running: Running, bystander: Peer) -> None:
    async with peer(running.voice_url) as client:
        await client.send(type="session.start")
        ready = await client.receive()
        await client.send(type="text", text="Hello?")
        await client.until("segment")
        client.socket.transport.abort()
    resume = {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": 0}
    async with peer(running.voice_url) as back:
        await back.send(type="session.start", resume=resume)
        again = await back.receive()
        assert again["resumed"] is True
        frames = await back.frames_until("turn.done")
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
