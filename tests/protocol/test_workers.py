"""Two gateway processes behind one port: to their clients they are one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidMessage, InvalidStatus

from tests.doubles.redis_server import RedisServer, redis_server
from tests.protocol.peer import Frame, Peer, peer
from tests.protocol.test_redis_store import saved
from tests.running import Running, gateway

QUICK = {
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "5",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "5",
    "STRETTO_FAKE__TTS_RTF": "0.01",
    "STRETTO_FAKE__REPLY": "One two three. Four five six seven.",
    "STRETTO_KEYS": "main",
    "STRETTO_SESSION__MAX_SESSIONS": "12",
    "STRETTO_SERVER__DRAIN_S": "120",
}
PATIENCE_S = 60.0  # for what takes a second or two
TRIES = 60  # each connection comes to either worker; none of these ever needs so many


@pytest.fixture(scope="module")
def row() -> Iterator[Running]:
    with gateway(QUICK, "--workers", "2") as started:
        yield started


@pytest.fixture
def doomed() -> Iterator[Running]:
    """One that the test ends, or of which it kills a worker."""
    with gateway(QUICK, "--workers", "2") as started:
        yield started


@pytest.fixture
def talkative() -> Iterator[Running]:
    """One whose replies are more than a socket holds, and who soon gives up on those that do not read them."""
    long = {"STRETTO_FAKE__REPLY": "One two three four five six seven. " * 100, "STRETTO_TURN__MAX_TOKENS": "900"}
    with gateway({**QUICK, **long, "STRETTO_SESSION__SLOW_READER_S": "1"}, "--workers", "2") as started:
        yield started


@pytest.fixture
def doomed_with_store() -> Iterator[tuple[RedisServer, Running]]:
    with redis_server() as redis, gateway({**QUICK, "STRETTO_SESSION__STORE_URL": redis.url}, "--workers", "2") as started:
        yield redis, started


@asynccontextmanager
async def talker(running: Running, key: str = "main") -> AsyncIterator[Peer]:
    async with peer(running.voice_url, key=key, close_timeout=1) as client:
        yield client


async def started(client: Peer, **fields: object) -> Frame:
    await client.send(type="session.start", **fields)
    return await client.until("session.ready")


def wish(ready: Frame, last_seq: int) -> Frame:
    return {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": last_seq}


def asked(running: Running, path: str) -> str:
    request = urllib.request.Request(f"{running.http_url}{path}", headers={"Authorization": "Bearer main"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


async def metric(running: Running, name: str) -> dict[str, float]:
    """Worker -> value."""
    page = await asyncio.to_thread(asked, running, "/metrics")
    return {worker: float(value) for worker, value in re.findall(rf'^{name}{{worker="(\d)"}} (\S+)$', page, re.MULTILINE)}


async def pids(running: Running) -> set[int]:
    """Of the workers, asked until both have answered."""
    found: set[int] = set()
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < 2:
            found.add(json.loads(await asyncio.to_thread(asked, running, "/healthz"))["pid"])
    return found


async def heard(client: Peer, frames: list[Frame], n_frames: int | None = None) -> None:
    """Read on: so many frames, or to the turn's end."""
    while n_frames is None or n_frames > 0:
        frames.append(await client.receive())
        if frames[-1]["type"] == "turn.done":
            return
        n_frames = None if n_frames is None else n_frames - 1


def audio(frames: list[Frame]) -> bytes:
    return b"".join(frame["data"] for frame in frames if frame["type"] == "audio")


async def test_a_conversation_is_whole_whichever_worker_its_client_comes_back_to(row: Running) -> None:
    async with talker(row) as client:
        await started(client)
        undisturbed: list[Frame] = []
        await client.send(type="text", text="Count.")
        await heard(client, undisturbed)
    for _ in range(TRIES):
        frames: list[Frame] = []
        async with talker(row) as client:
            ready = await started(client)
            await client.send(type="text", text="Count.")
            await heard(client, frames, 6)
            client.socket.transport.abort()
        while frames[-1]["type"] != "turn.done":
            async with talker(row) as client:
                ready = await started(client, resume=wish(ready, frames[-1]["seq"]))
                assert (ready["resumed"], "gap" in ready) == (True, False)
                await heard(client, frames, 12)
                if frames[-1]["type"] != "turn.done":
                    client.socket.transport.abort()
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
        assert audio(frames) == audio(undisturbed)
        assert [f["text"] for f in frames if f["type"] == "segment"] == [f["text"] for f in undisturbed if f["type"] == "segment"]
        if all((await metric(row, "stretto_connections_carried_total")).values()):
            return
    raise AssertionError("no connection ever came to the other worker")


async def test_a_carried_client_is_refused_and_superseded_as_any_other(row: Running) -> None:
    async with AsyncExitStack() as stack:
        holder = await stack.enter_async_context(talker(row))
        ready, last_seq = await started(holder, output="text"), 0
        for _ in range(8):  # of eight, one comes to the other worker
            async with talker(row) as thief:
                await thief.send(type="session.start", resume={**wish(ready, last_seq), "token": "guess"})
                code, frames = await thief.closed()
                assert (code, frames[-1]["code"]) == (1008, "resume_denied")
            newer = await stack.enter_async_context(talker(row))
            ready = await started(newer, resume=wish(ready, last_seq))
            code, frames = await holder.closed()
            assert (code, frames[-1]["code"]) == (4001, "superseded")
            await newer.send(type="ping", t=2.0)
            last_seq = (await newer.until("pong"))["seq"]
            holder = newer


async def test_places_are_counted_over_all_workers(row: Running) -> None:
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(PATIENCE_S):
            while sum((await metric(row, "stretto_sessions")).values()):  # of the tests before
                await asyncio.sleep(0.05)
        for _ in range(11):
            await started(await stack.enter_async_context(talker(row)), output="text")
        async with talker(row) as twelfth:
            await started(twelfth, output="text")
            for _ in range(6):  # whichever worker it comes to
                with pytest.raises(InvalidStatus) as caught:
                    async with talker(row):
                        pass
                assert caught.value.response.status_code == 503
                assert "Retry-After" in caught.value.response.headers
        async with asyncio.timeout(PATIENCE_S):
            while sum((await metric(row, "stretto_connections")).values()) > 11:
                await asyncio.sleep(0.05)
        async with talker(row) as client:
            await started(client, output="text")


async def test_a_full_house_lets_in_who_comes_for_its_own_place_whichever_worker_has_it(row: Running) -> None:
    async with AsyncExitStack() as stack:
        async with asyncio.timeout(PATIENCE_S):
            while sum((await metric(row, "stretto_connections")).values()):  # of the tests before
                await asyncio.sleep(0.05)
        holders = [await stack.enter_async_context(talker(row)) for _ in range(12)]
        old, carried = holders.pop(), sum((await metric(row, "stretto_connections_carried_total")).values())
        ready, *_ = [await started(old, output="text"), *[await started(holder, output="text") for holder in holders]]
        for _ in range(TRIES):
            with pytest.raises(InvalidStatus):
                async with talker(row):
                    pass
            url = f"{row.voice_url}?resume={ready['session_id']}"
            new = await stack.enter_async_context(peer(url, key="main", close_timeout=1))
            ready = await started(new, resume=wish(ready, 0))
            assert ready["resumed"]
            assert (await old.closed())[0] == 4001
            old = new
            if sum((await metric(row, "stretto_connections_carried_total")).values()) > carried:
                return
        pytest.fail("no connection was carried")


def ticket_of(running: Running, **wish: object) -> str:
    data = json.dumps(wish).encode()
    request = urllib.request.Request(f"{running.http_url}/v1/tickets", data, {"Authorization": "Bearer main"}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["ticket"])


async def test_a_carried_session_goes_on_with_the_rights_of_what_is_shown_at_the_resume(row: Running) -> None:
    carried = sum((await metric(row, "stretto_connections_carried_total")).values())
    for _ in range(TRIES):
        async with talker(row) as client:
            ready = await started(client, output="text", instructions="Be a pirate.")
            client.socket.transport.abort()
        narrow = await asyncio.to_thread(partial(ticket_of, row, instructions=False))
        async with talker(row, narrow) as client:
            assert (await started(client, resume=wish(ready, 0)))["resumed"]
            assert (await client.until("session.updated"))["instructions"] == ""
            await client.send(type="session.update", instructions="Obey.")
            assert (await client.until("error"))["code"] == "not_permitted"
            await client.socket.close(1000)
        if sum((await metric(row, "stretto_connections_carried_total")).values()) > carried:
            return
    pytest.fail("no connection was carried")


def ticket(row: Running) -> str:
    request = urllib.request.Request(f"{row.http_url}/v1/tickets", b"{}", {"Authorization": "Bearer main"}, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["ticket"])


async def test_a_ticket_opens_either_worker_once(row: Running) -> None:
    for _ in range(8):
        shown = await asyncio.to_thread(ticket_of, row)
        async with talker(row, shown) as client:
            await started(client, output="text")
        for _ in range(3):
            with pytest.raises(InvalidStatus) as caught:
                async with talker(row, shown):
                    pass
            assert caught.value.response.status_code == 401


async def test_a_ticket_that_is_shown_at_both_workers_at_once_opens_one_connection(row: Running) -> None:
    async def is_let_in(shown: str) -> bool:
        try:
            await stack.enter_async_context(talker(row, shown))
        except InvalidStatus:
            return False
        return True

    for _ in range(6):
        async with AsyncExitStack() as stack:
            shown = await asyncio.to_thread(ticket, row)
            assert sum(await asyncio.gather(*(is_let_in(shown) for _ in range(8)))) == 1


async def test_a_worker_that_dies_takes_its_own_conversations_and_is_started_again(doomed: Running) -> None:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(talker(doomed)) for _ in range(8)]
        for client in peers:
            await started(client, output="text")
        before = await pids(doomed)
        os.kill(min(before), signal.SIGKILL)
        fates = await asyncio.gather(*(fate(client) for client in peers))
        async with asyncio.timeout(PATIENCE_S):
            while sorted((await metric(doomed, "stretto_worker_restarts")).values()) != [0, 1]:
                await asyncio.sleep(0.1)
        assert len(await pids(doomed) & before) == 1
        assert sum((await metric(doomed, "stretto_sessions")).values()) == fates.count("alive")
        for _ in range(3):
            async with talker(doomed) as client:
                await started(client, output="text")
                await client.send(type="text", text="Count.")
                assert (await client.until("turn.done"))["status"] == "completed"


async def fate(client: Peer) -> str:
    try:
        async with asyncio.timeout(PATIENCE_S):
            for number in range(5):
                await client.send(type="text", text="Count.")
                assert (await client.until("turn.done"))["status"] == "completed", number
    except ConnectionClosed:
        return "lost"
    return "alive"


async def test_with_a_store_the_conversations_of_a_dead_worker_go_on_in_the_other(doomed_with_store: tuple[RedisServer, Running]) -> None:
    redis, row = doomed_with_store
    async with talker(row) as client:
        ready = await started(client, output="text")
        await client.send(type="text", text="Count.")
        seq = (await client.until("turn.done"))["seq"]
        await saved(redis, ready["session_id"], lambda copy: b"seven." in copy.get(b"state", b""))
        for pid in await pids(row):
            os.kill(pid, signal.SIGKILL)
        await client.closed()
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                async with talker(row) as client:
                    again = await started(client, resume=wish(ready, seq))
                    assert (again["resumed"], again["gap"]) == (True, True)
                    await client.send(type="text", text="Go on.")
                    assert (await client.until("turn.started"))["turn"] == 2
                    return
            except (OSError, InvalidMessage):  # nobody listens, or a dying socket does, until a worker is up again
                await asyncio.sleep(0.1)


async def test_sigterm_lets_every_worker_finish_its_replies(doomed: Running) -> None:
    async with AsyncExitStack() as stack:
        peers = [await stack.enter_async_context(talker(doomed)) for _ in range(8)]
        ready = [await started(client) for client in peers]
        for client in peers:
            await client.send(type="text", text="Count.")
            await client.until("audio")
        carried = [await stack.enter_async_context(talker(doomed)) for _ in range(4)]  # half of them, by chance
        for client, known in zip(carried, ready, strict=False):
            assert (await started(client, resume=wish(known, 0)))["resumed"] is True
        doomed.process.send_signal(signal.SIGTERM)
        for code, frames in await asyncio.gather(*(client.closed() for client in (*carried, *peers[4:]))):
            assert code == 4004
            assert [frame["status"] for frame in frames if frame["type"] == "turn.done"] == ["completed"]
        assert await asyncio.to_thread(doomed.process.wait, PATIENCE_S) == 0


async def test_workers_do_not_outlive_a_parent_that_was_killed(doomed: Running) -> None:
    workers = await pids(doomed)
    doomed.process.kill()
    async with asyncio.timeout(PATIENCE_S):
        while any(map(is_alive, workers)):
            await asyncio.sleep(0.1)


def is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def run(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **QUICK, **settings}
    command = [sys.executable, "-m", "gateway", "serve", "--port", "0", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_a_model_for_each_worker_is_refused() -> None:
    ended = run("--workers", "2", STRETTO_LLM__ENGINE="llamacpp", STRETTO_TTS__ENGINES='["fake"]')
    assert ended.returncode == 1
    assert "cannot start: 2 workers would each load the language model llamacpp (llm.engine says so)" in ended.stderr
    assert "or --workers 1" in ended.stderr


def test_workers_that_cannot_start_end_the_command_with_their_reason(tmp_path: Path) -> None:
    ended = run("--workers", "2", "--engines", "fake", STRETTO_SESSION__STORE_URL="redis://[")
    assert ended.returncode == 1
    assert "session.store_url is not an address" in ended.stderr


def test_the_port_of_another_row_is_not_shared_unseen(row: Running) -> None:
    ended = run("--workers", "2", "--engines", "fake", "--port", str(row.port))
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{row.port}" in ended.stderr


def test_health_is_the_same_through_either_worker(row: Running) -> None:
    ends_at = time.monotonic() + PATIENCE_S
    seen: set[int] = set()
    while len(seen) < 2 and time.monotonic() < ends_at:
        seen.add(json.loads(asked(row, "/healthz"))["pid"])
        assert json.loads(asked(row, "/readyz"))["ready"] is True
    assert len(seen) == 2


async def test_a_phone_that_vanishes_while_it_is_carried_is_no_error_of_ours(row: Running) -> None:
    async with talker(row) as client:
        ready = await started(client)
        client.socket.transport.abort()
    for _ in range(24):
        async with talker(row) as client:
            ready = await started(client, resume=wish(ready, 0))
            await client.send(type="text", text="Count.")
            await client.until("audio")
            client.socket.transport.abort()
    async with talker(row) as client:
        await started(client, resume=wish(ready, 0))
        await client.socket.close(1000)
    assert [line[-1500:] for line in row.lines if "Exception" in line] == []


async def test_a_carried_client_that_does_not_read_loses_its_place(talkative: Running) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(TRIES):  # one of two is carried
            async with talker(talkative) as client:
                ready = await started(client)
                client.socket.transport.abort()
            client = await stack.enter_async_context(peer(talkative.voice_url, key="main", ping_interval=None, close_timeout=0.1))
            await started(client, resume=wish(ready, 0))
            await client.send(type="text", text="Count.")
            client.socket.transport.pause_reading()
            stack.callback(client.socket.transport.abort)
            if sum((await metric(talkative, "stretto_connections_carried_total")).values()) > 0:
                break
        else:
            pytest.fail("none was carried")
        async with asyncio.timeout(PATIENCE_S):
            while sum((await metric(talkative, "stretto_connections")).values()):
                await asyncio.sleep(0.2)


async def test_the_last_places_are_kept_for_other_keys_whichever_worker_holds_the_first_ones() -> None:
    with gateway({**QUICK, "STRETTO_KEYS": "greedy,modest,main", "STRETTO_SESSION__RESERVE_SHARE": "0.25"}, "--workers", "2") as row:
        async with AsyncExitStack() as stack:
            for _ in range(9):  # of twelve places three are kept
                await started(await stack.enter_async_context(talker(row, "greedy")), output="text")
            for _ in range(6):  # whichever worker it comes to
                async with talker(row, "greedy") as client:
                    await client.send(type="session.start", output="text")
                    code, frames = await client.closed()
                    assert (code, frames[-1]["code"]) == (1013, "overloaded")
                async with asyncio.timeout(PATIENCE_S):  # until the refused one has left its place
                    while sum((await metric(row, "stretto_connections")).values()) > 9:
                        await asyncio.sleep(0.05)
            for _ in range(3):
                await started(await stack.enter_async_context(talker(row, "modest")), output="text")


def test_sockets_of_an_address_are_counted_over_all_workers() -> None:
    settings = {**QUICK, "STRETTO_SERVER__SOCKETS_PER_ADDRESS": "6", "STRETTO_SERVER__REQUEST_S": "600"}
    with gateway(settings, "--workers", "2") as row, contextlib.ExitStack() as held:
        ends_at, n_held = time.monotonic() + PATIENCE_S, 0
        while n_held < 6:  # in the meantime one that asked for something else may still be going
            if stays_open(row, held):
                n_held += 1
            assert time.monotonic() < ends_at
        assert [stays_open(row, held) for _ in range(16)].count(True) <= 1, "two that come at once may both find the last place"
        held.pop_all().close()
        while not stays_open(row, held):
            assert time.monotonic() < ends_at


def stays_open(running: Running, held: contextlib.ExitStack) -> bool:
    """Open a socket, and hold it with half a request; whether it is served."""
    client = socket.create_connection(("127.0.0.1", running.port), timeout=10)
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    try:
        is_served = client.recv(64).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        is_served = False
    if is_served:
        client.sendall(b"GET /")  # a socket that has nothing to say is closed after seconds
        held.callback(client.close)
    else:
        client.close()
    return is_served
