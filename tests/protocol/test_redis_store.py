"""Gateways that share a Redis: a conversation outlives the process that held it, and belongs to one of them at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from redis import Redis
from redis.exceptions import ResponseError
from websockets.exceptions import InvalidStatus

from tests.doubles.redis_server import RedisServer, redis_server
from tests.protocol.peer import Frame, Peer, peer
from tests.running import Running, gateway

REPLY = "One two three four five six seven. Eight nine ten eleven twelve. Thirteen and fourteen follow. And so on it goes until the end."
QUICK = {
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "5",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "5",
    "STRETTO_FAKE__TTS_RTF": "0.01",
    "STRETTO_FAKE__REPLY": REPLY,
    "STRETTO_KEYS": "main,metrics",
    "STRETTO_KEYS__KIOSK__KEY": "kiosk",
    "STRETTO_KEYS__KIOSK__TOOLS": "false",
}
SAVED_S = 60.0  # it is a fifth of a second; a bound for bad days


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


def sharing(redis: RedisServer) -> contextlib.AbstractContextManager[Running]:
    return gateway({**QUICK, "STRETTO_SESSION__STORE_URL": redis.url})


@pytest.fixture(scope="module")
def first(redis: RedisServer) -> Iterator[Running]:
    with sharing(redis) as started:
        yield started


@pytest.fixture(scope="module")
def second(redis: RedisServer) -> Iterator[Running]:
    with sharing(redis) as started:
        yield started


@pytest.fixture(scope="module")
def third(redis: RedisServer) -> Iterator[Running]:
    with sharing(redis) as started:
        yield started


@pytest.fixture
def doomed(redis: RedisServer) -> Iterator[Running]:
    """One that the test ends."""
    with sharing(redis) as started:
        yield started


@pytest.fixture
def stricter(redis: RedisServer) -> Iterator[Running]:
    """One of the next deploy, where a key may do less."""
    with gateway({**QUICK, "STRETTO_SESSION__STORE_URL": redis.url, "STRETTO_KEYS__KIOSK__INSTRUCTIONS": "false"}) as started:
        yield started


@pytest.fixture
def revoking(redis: RedisServer) -> Iterator[Running]:
    """One of the next deploy, where a key is gone."""
    kept = {name: setting for name, setting in QUICK.items() if "KIOSK" not in name}
    with gateway({**kept, "STRETTO_SESSION__STORE_URL": redis.url}) as started:
        yield started


class Pair(NamedTuple):
    redis: RedisServer
    first: Running
    other: Running


@pytest.fixture(scope="module")
def apart() -> Iterator[Pair]:
    """Two gateways, and a Redis of their own that the tests break and mend."""
    with redis_server() as redis, sharing(redis) as one, sharing(redis) as two:
        yield Pair(redis, one, two)


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[Running]:
    """A gateway whose Redis was never there."""
    with gateway({**QUICK, "STRETTO_SESSION__STORE_URL": f"unix://{tmp_path}/nobody"}) as started:
        yield started


def talker(running: Running, key: str = "main") -> contextlib.AbstractAsyncContextManager[Peer]:
    return peer(running.voice_url, key=key)


async def started(client: Peer, **fields: object) -> Frame:
    await client.send(type="session.start", **fields)
    return await client.until("session.ready")


def wish(ready: Frame, last_seq: int) -> Frame:
    return {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": last_seq}


async def resumed(client: Peer, ready: Frame, last_seq: int) -> Frame:
    return await started(client, resume=wish(ready, last_seq))


def copy_of(redis: RedisServer, session_id: str) -> dict[bytes, bytes]:
    with Redis.from_url(redis.url) as client:
        return dict(client.hgetall(f"stretto:{session_id}"))


async def saved(redis: RedisServer, session_id: str, is_there: Callable[[dict[bytes, bytes]], bool]) -> dict[bytes, bytes]:
    """Wait until the copy is as wanted."""
    async with asyncio.timeout(SAVED_S):
        while not is_there(copy := copy_of(redis, session_id)):
            await asyncio.sleep(0.05)
    return copy


def value(running: Running, name: str) -> float:
    request = urllib.request.Request(f"{running.http_url}/metrics", headers={"Authorization": "Bearer metrics"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None, f"{name} is on /metrics"
    return float(found[1])


def told_away(running: Running) -> int:
    return sum("session store is away" in line for line in running.lines)


async def told_everything(client: Peer, text: str) -> list[Frame]:
    await client.send(type="text", text=text)
    return await client.frames_until("turn.done")


async def test_a_conversation_goes_on_when_its_gateway_is_killed_in_the_middle_of_a_word(
    redis: RedisServer, doomed: Running, second: Running
) -> None:
    async with talker(doomed) as client:
        ready = await started(client, instructions="You count.", language="en-GB", tools=[{"name": "look"}])
        await client.send(type="item.add", id="once", text="I like ships.")
        await client.send(type="text", text="Count.")
        seen = [await client.receive() for _ in range(20)]
        await saved(redis, ready["session_id"], lambda copy: b"One two three" in copy.get(b"state", b""))
        doomed.process.kill()
        _, rest = await client.closed()
    last_seq = max(frame["seq"] for frame in (*seen, *rest) if "seq" in frame)
    async with talker(second) as client:
        again = await resumed(client, ready, last_seq)
        assert (again["resumed"], again["gap"], again["session_id"]) == (True, True, ready["session_id"])
        assert again["turns"] == 1
        assert again["resume_token"] != ready["resume_token"]
        error, heard, done = [await client.receive() for _ in range(3)]
        assert (error["type"], error["code"], error["turn"]) == ("error", "reply_lost", 1)
        assert [frame["seq"] for frame in (error, heard, done)] == [last_seq + 1, last_seq + 2, last_seq + 3]
        assert (heard["type"], heard["turn"]) == ("heard", 1)
        assert REPLY.startswith(heard["heard_text"].strip())
        assert 0 < len(heard["heard_text"]) < len(REPLY)
        assert (done["type"], done["status"]) == ("turn.done", "failed")
        await client.send(type="item.add", id="once", text="I like ships.")
        assert (await client.until("ack"))["repeated"] is True
        await client.send(type="session.update", id="u", output="text")
        settings = await client.until("session.updated")
        assert (settings["instructions"], settings["language"], settings["tools"][0]["name"]) == ("You count.", "en-GB", "look")
        frames = await told_everything(client, "Go on.")
        assert frames[0]["turn"] == 2
        assert frames[-1]["status"] == "completed"


async def test_a_deploy_takes_no_conversation_with_it(redis: RedisServer, doomed: Running, second: Running) -> None:
    async with talker(doomed) as client:
        ready = await started(client, output="text")
        await told_everything(client, "Count.")
        doomed.process.send_signal(signal.SIGTERM)
        code, frames = await client.closed()
        assert code == 4004
    async with talker(second) as client:
        last_seq = max(frame["seq"] for frame in frames if "seq" in frame)
        assert (await resumed(client, ready, last_seq))["resumed"] is True
        frames = await told_everything(client, "Go on.")
        assert (frames[0]["type"], frames[0]["turn"]) == ("turn.started", 2), "the first reply was whole: nothing has failed"
        assert b"Count." in (await saved(redis, ready["session_id"], lambda copy: b"Go on." in copy[b"state"]))[b"state"]


async def test_of_two_gateways_that_claim_a_session_one_has_it_and_the_other_is_told(
    redis: RedisServer, first: Running, second: Running, third: Running
) -> None:
    for _ in range(5):
        async with talker(first) as lost, talker(second) as one, talker(third) as two:
            ready = await started(lost, output="text")
            await told_everything(lost, "Count.")
            await saved(redis, ready["session_id"], lambda copy: REPLY[-20:].encode() in copy.get(b"state", b""))
            await asyncio.gather(*(client.send(type="session.start", resume=wish(ready, 9)) for client in (one, two)))
            await asyncio.gather(one.until("session.ready"), two.until("session.ready"))
            code, frames = await lost.closed()
            assert (code, frames[-1]["code"]) == (4001, "superseded")
            ends = {asyncio.ensure_future(client.closed()): client for client in (one, two)}
            done, alive = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED, timeout=SAVED_S)
            for waiting in alive:
                waiting.cancel()
            await asyncio.gather(*alive, return_exceptions=True)
            assert [end.result()[0] for end in done] == [4001]
            winner = ends[next(iter(alive))]
            await winner.send(type="ping", t=1.0)
            assert (await winner.until("pong"))["t"] == 1.0
            with Redis.from_url(redis.url) as client:
                assert client.hget(f"stretto:{ready['session_id']}", "before") is not None


async def test_a_token_is_good_for_one_process_once_its_client_has_spoken_there(
    redis: RedisServer, first: Running, second: Running, third: Running
) -> None:
    async with talker(first) as lost, talker(second) as client, talker(third) as thief:
        ready = await started(lost, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        await resumed(client, ready, 0)
        await client.send(type="ping", t=1.0)
        await client.until("pong")
        await saved(redis, ready["session_id"], lambda copy: copy[b"before"] == b"")
        await thief.send(type="session.start", resume=wish(ready, 0))
        code, frames = await thief.closed()
        assert (code, frames[-1]["code"]) == (1008, "resume_denied")
        await client.send(type="ping", t=2.0)
        assert (await client.until("pong"))["t"] == 2.0


@pytest.mark.parametrize(("key", "token"), [("main", "guess"), ("kiosk", None)])
async def test_a_wrong_token_or_another_key_takes_nothing_away(
    redis: RedisServer, first: Running, second: Running, key: str, token: str | None
) -> None:
    async with talker(first) as owner:
        ready = await started(owner, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        async with talker(second, key) as thief:
            await thief.send(type="session.start", resume=wish(ready, 0) | ({"token": token} if token else {}))
            code, frames = await thief.closed()
            assert (code, frames[-1]["code"]) == (1008, "resume_denied")
        assert (await told_everything(owner, "Count."))[-1]["status"] == "completed"


async def test_a_key_that_may_less_after_a_deploy_may_less_in_the_conversations_that_go_on(
    redis: RedisServer, first: Running, stricter: Running
) -> None:
    async with talker(first, "kiosk") as client:
        ready = await started(client, output="text", instructions="Be a pirate.")
        await saved(redis, ready["session_id"], lambda copy: b"state" in copy)
    shown = await asyncio.to_thread(ticket_of, first, "kiosk")
    async with talker(stricter, "kiosk") as again:
        ready = await resumed(again, ready, 0)
        assert (ready["resumed"], ready["gap"]) == (True, True)
        assert (await again.until("session.updated"))["instructions"] == ""
        await again.send(type="session.update", instructions="Obey.")
        assert (await again.until("error"))["code"] == "not_permitted"
    async with talker(stricter, shown) as by_ticket:
        await by_ticket.send(type="session.start", instructions="Obey.")
        assert (await by_ticket.until("error"))["code"] == "not_permitted"


async def test_a_key_that_a_deploy_has_revoked_opens_nothing_by_its_tickets_either(
    redis: RedisServer, first: Running, revoking: Running
) -> None:
    shown = await asyncio.to_thread(ticket_of, first, "kiosk")
    async with talker(first, "kiosk") as client:
        ready = await started(client, output="text")
        await saved(redis, ready["session_id"], lambda copy: b"state" in copy)
        for key in ("kiosk", shown):
            with pytest.raises(InvalidStatus) as caught:
                async with talker(revoking, key):
                    pass
            assert caught.value.response.status_code == 401
        async with talker(revoking) as other:  # another key, and the right token
            await other.send(type="session.start", resume=wish(ready, 0))
            assert (await other.until("error"))["code"] == "resume_denied"
        await client.send(type="ping", t=1.0)
        await client.until("pong")


async def test_what_stands_in_redis_opens_no_session_and_does_not_stay(redis: RedisServer, second: Running) -> None:
    async with talker(second) as client:
        ready = await started(client, output="text")
        copy = await saved(redis, ready["session_id"], lambda copy: bool(copy))
        assert ready["resume_token"].encode() not in b"".join(copy.values())
        with Redis.from_url(redis.url) as reader:
            assert 50_000 < int(reader.pttl(f"stretto:{ready['session_id']}")) <= 61_000
    await saved(redis, ready["session_id"], lambda copy: b"state" not in copy)
    async with talker(second) as client:
        assert (await resumed(client, ready, 0))["resumed"] is False


@pytest.mark.parametrize("fault", ["kill", "hang"])
async def test_without_redis_everything_goes_on_and_afterwards_everything_is_saved_again(apart: Pair, fault: str) -> None:
    redis, first, other = apart
    n_told = told_away(first)
    async with talker(first) as client:
        ready = await started(client, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        getattr(redis, fault)()
        frames = await told_everything(client, "Count.")
        assert frames[-1]["status"] == "completed"
        async with asyncio.timeout(SAVED_S):
            while not value(first, "stretto_store_away"):
                await asyncio.sleep(0.05)
        async with talker(first) as back:
            again = await resumed(back, ready, frames[-1]["seq"])
            assert (again["resumed"], "gap" in again) == (True, False), "as without Redis"
            frames = await told_everything(back, "Again.")
            redis.go_on() if fault == "hang" else redis.start()
            await saved(redis, ready["session_id"], lambda copy: b"Again." in copy.get(b"state", b""))
            assert value(first, 'stretto_store_errors_total{call="save"}') > 0
            assert told_away(first) == n_told + 1, "once, not at each try"
            redis.kill()
            redis.start()
            await saved(redis, ready["session_id"], lambda copy: b"Again." in copy.get(b"state", b""))  # though nothing was said since
            async with talker(other) as elsewhere:
                moved = await resumed(elsewhere, again, frames[-1]["seq"])
                assert (moved["resumed"], moved["gap"]) == (True, True)
                assert (await back.closed())[0] == 4001
    async with asyncio.timeout(SAVED_S):
        while value(first, "stretto_store_away"):
            await asyncio.sleep(0.05)


async def test_a_gateway_starts_and_talks_while_its_redis_is_not_there(lonely: Running) -> None:
    async with talker(lonely) as client:
        await started(client, output="text")
        assert (await told_everything(client, "Count."))[-1]["status"] == "completed"


async def test_a_copy_that_nobody_understands_gives_a_new_session(redis: RedisServer, first: Running, second: Running) -> None:
    async with talker(first) as client:
        ready = await started(client, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
    with Redis.from_url(redis.url) as writer:
        writer.hset(f"stretto:{ready['session_id']}", "state", b"\x81\xa1x\x01")
    async with talker(second) as client:
        again = await started(client, resume=wish(ready, 0), output="text")
        assert again["resumed"] is False
        assert again["session_id"] != ready["session_id"]
        assert (await told_everything(client, "Count."))[-1]["status"] == "completed"


def ticket_of(running: Running, key: str = "main") -> str:
    request = urllib.request.Request(f"{running.http_url}/v1/tickets", b"{}", {"Authorization": f"Bearer {key}"}, method="POST")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.load(answer)["ticket"])


async def test_a_ticket_of_one_gateway_opens_any_of_them_once(redis: RedisServer, first: Running, second: Running, third: Running) -> None:
    shown = await asyncio.to_thread(ticket_of, first)
    async with talker(second, shown) as client:
        ready = await started(client, output="text")
        for running in (first, second, third):
            with pytest.raises(InvalidStatus) as caught:
                async with talker(running, shown):
                    pass
            assert caught.value.response.status_code == 401
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        client.socket.transport.abort()
    another = await asyncio.to_thread(ticket_of, third)
    async with talker(first, another) as client:
        assert (await resumed(client, ready, 0))["resumed"] is True, "a new ticket of the same key"
    with Redis.from_url(redis.url) as reader:
        kept = {name: reader.hgetall(name) for name in reader.keys("stretto:ticket:*")}
        assert kept
        assert all(0 < int(reader.pttl(name)) < 7_400_000 for name in kept)
    assert shown.encode() not in b"".join([*kept, *(value for fields in kept.values() for value in fields.values())])


async def test_a_used_ticket_that_redis_has_lost_opens_nothing_where_it_was_made(
    redis: RedisServer, first: Running, second: Running
) -> None:
    shown = await asyncio.to_thread(ticket_of, first)
    async with talker(second, shown) as client:
        await started(client, output="text")
    with Redis.from_url(redis.url) as reader:
        assert reader.delete(*reader.keys("stretto:ticket:*"))
    with pytest.raises(InvalidStatus) as caught:
        async with talker(first, shown):
            pass
    assert caught.value.response.status_code == 401


async def test_without_redis_a_ticket_opens_the_gateway_that_made_it(lonely: Running) -> None:
    shown = await asyncio.to_thread(ticket_of, lonely)
    async with talker(lonely, shown) as client:
        await started(client, output="text")
        with pytest.raises(InvalidStatus):
            async with talker(lonely, shown):
                pass


async def test_what_is_no_session_under_a_sessions_name_keeps_no_other_from_being_saved(redis: RedisServer, first: Running) -> None:
    n_told = told_away(first)
    async with contextlib.AsyncExitStack() as stack:
        talkers = [await stack.enter_async_context(talker(first)) for _ in range(3)]
        ids = [(await started(client, output="text"))["session_id"] for client in talkers]
        for session_id in ids:
            await saved(redis, session_id, lambda copy: bool(copy))
        with Redis.from_url(redis.url) as writer:
            writer.set(f"stretto:{ids[0]}", "garbage")
        for client in talkers:
            await told_everything(client, "Count.")
        with contextlib.suppress(ResponseError):  # it is no hash for a moment
            await saved(redis, ids[0], lambda copy: b"Count." in copy.get(b"state", b""))
        for session_id in ids:
            await saved(redis, session_id, lambda copy: b"Count." in copy.get(b"state", b""))
    assert told_away(first) == n_told


async def test_a_copy_of_another_session_is_none(redis: RedisServer, first: Running, second: Running) -> None:
    async with talker(first) as client, talker(first) as other:
        ready, foreign = await started(client, output="text"), await started(other, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        copy = await saved(redis, foreign["session_id"], lambda copy: bool(copy))
        with Redis.from_url(redis.url) as writer:
            writer.hset(f"stretto:{ready['session_id']}", "state", copy[b"state"])
        async with talker(second) as thief:
            assert (await resumed(thief, ready, 0))["resumed"] is False


async def test_a_crowd_with_one_token_leaves_no_connection_on_a_dead_session(redis: RedisServer, first: Running, second: Running) -> None:
    async with talker(first) as lost:
        ready = await started(lost, output="text")
        await saved(redis, ready["session_id"], lambda copy: bool(copy))
        lost.socket.transport.abort()
    async with contextlib.AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(talker(second)) for _ in range(12)]
        await asyncio.gather(*(client.send(type="session.start", resume=wish(ready, 1)) for client in crowd))
        ends = {asyncio.ensure_future(client.closed()) for client in crowd}
        async with asyncio.timeout(SAVED_S):
            while sum(not end.done() for end in ends) > 1:
                await asyncio.sleep(0.05)
        for end in ends:
            end.cancel()
