"""A phone changes networks: it is back on a new socket while the old one is not yet known to be dead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
from prometheus_client import CollectorRegistry
from websockets.exceptions import InvalidStatus

from gateway.admission import BACK_AT_ONCE
from gateway.errors import Superseded
from gateway.events import Pong
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from tests.protocol.peer import Frame, Peer, peer
from tests.protocol.test_tickets import ask
from tests.running import Running, gateway

QUICK = {
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "5",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "5",
    "STRETTO_FAKE__TTS_RTF": "0.01",
}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway(QUICK) as started:
        yield started


async def resumed(client: Peer, ready: Frame, last_seq: int) -> Frame:
    wish = {"session_id": ready["session_id"], "token": ready["resume_token"], "last_seq": last_seq}
    await client.send(type="session.start", resume=wish)
    return await client.until("session.ready")


async def started(client: Peer, **fields: object) -> Frame:
    await client.send(type="session.start", **fields)
    return await client.until("session.ready")


async def test_a_newer_socket_gets_all_that_the_silent_old_one_may_have_lost(running: Running) -> None:
    async with peer(running.voice_url) as old, peer(running.voice_url) as new:
        ready = await started(old, output="text")
        await old.send(type="text", text="Hello?")
        before = await old.frames_until("turn.done")
        assert (await resumed(new, ready, 0))["resumed"] is True
        again = await new.frames_until("turn.done")
        assert again == before
        code, late = await old.closed()
        assert code == 4001
        assert [frame["type"] for frame in late] == ["error"], "the old socket takes nothing of the new one's"


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.2])
async def test_a_reply_under_way_goes_on_whole_on_the_newer_socket(running: Running, after_s: float) -> None:
    async with peer(running.voice_url) as old, peer(running.voice_url) as new:
        ready = await started(old)
        await old.send(type="text", text="Hello?")
        await asyncio.sleep(after_s)
        assert (await resumed(new, ready, 0))["resumed"] is True
        frames = await new.frames_until("segment.done")
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))


async def test_of_two_sockets_that_race_for_a_session_the_last_one_has_it(running: Running) -> None:
    async with peer(running.voice_url) as lost, peer(running.voice_url) as one, peer(running.voice_url) as two:
        ready = await started(lost, output="text")
        await lost.send(type="text", text="Hello?")
        await lost.until("turn.done")
        await asyncio.gather(resumed(one, ready, 0), resumed(two, ready, 0))
        (code, _), _ = await asyncio.gather(one.closed(), two.frames_until("turn.done"))
        assert code == 4001
        await two.send(type="ping", t=1.0)
        assert (await two.until("pong"))["t"] == 1.0


async def test_a_reader_that_was_just_woken_leaves_the_frame_to_the_newer_one() -> None:
    outbox = Outbox(Metrics(CollectorRegistry()), asyncio.get_running_loop().time, 10)
    async with asyncio.TaskGroup() as tasks:
        old = tasks.create_task(refused(outbox), name="old reader")
        await asyncio.sleep(0)
        outbox.put(Pong(t=1.0))
        assert outbox.rewind(0)
        await old
    seq, event = await outbox.next()
    assert (seq, event) == (1, Pong(t=1.0))


@pytest.fixture
def full() -> Iterator[Running]:
    """A house with one place, where each user of a key may have one conversation."""
    keyed = {"STRETTO_KEYS__APP__KEY": "alpha", "STRETTO_KEYS__APP__SESSIONS": "1", "STRETTO_SESSION__MAX_SESSIONS": "1"}
    with gateway({**QUICK, **keyed}) as started:
        yield started


def back(running: Running, ready: Frame) -> str:
    return f"{running.voice_url}?resume={ready['session_id']}"


async def test_a_full_house_lets_in_who_comes_for_its_own_place(full: Running) -> None:
    async with peer(full.voice_url, key="alpha") as old:  # nobody knows that it is dead
        ready = await started(old, output="text")
        with pytest.raises(InvalidStatus) as newcomer:
            async with peer(full.voice_url, key="alpha"):
                pass
        assert newcomer.value.response.status_code == 503
        for _ in range(3):
            async with peer(back(full, ready), key="alpha") as new:
                ready = await resumed(new, ready, 0)
                assert ready["resumed"] is True
                await new.send(type="ping", t=1.0)
                await new.until("pong")
                await new.socket.close(4000)
        assert (await old.closed())[0] == 4001


async def test_a_full_house_lets_nobody_in_who_only_says_so(full: Running) -> None:
    async with peer(full.voice_url, key="alpha") as guest:
        ready = await started(guest, output="text")
        for url in (f"{full.voice_url}?resume=sess_0123456789abcdef", f"{full.voice_url}?resume="):
            with pytest.raises(InvalidStatus) as caught:
                async with peer(url, key="alpha"):
                    pass
            assert caught.value.response.status_code == 503
        async with peer(back(full, ready), key="alpha") as liar:
            await liar.send(type="session.start", output="text")
            code, frames = await liar.closed()
            assert (code, frames[-1]["code"]) == (1013, "overloaded")
        async with peer(back(full, ready), key="alpha") as thief:
            await thief.send(type="session.start", resume={"session_id": ready["session_id"], "token": "guess", "last_seq": 0})
            assert (await thief.closed())[0] == 1008
        await guest.send(type="ping", t=1.0)
        await guest.until("pong")


async def test_for_one_session_a_few_may_come_at_once_and_no_house_full_of_them(full: Running) -> None:
    """Who holds sockets with its own session's name and says nothing keeps out nobody who comes for another one."""
    async with peer(full.voice_url, key="alpha") as guest, AsyncExitStack() as stack:
        ready = await started(guest, output="text")
        for _ in range(BACK_AT_ONCE):
            await stack.enter_async_context(peer(back(full, ready), key="alpha"))
        with pytest.raises(InvalidStatus) as caught:
            await stack.enter_async_context(peer(back(full, ready), key="alpha"))
        assert caught.value.response.status_code == 503
        await guest.send(type="ping", t=1.0)
        await guest.until("pong")


async def test_an_address_with_all_its_sockets_open_gets_another_one_for_an_open_session_alone() -> None:
    """Anybody has a session of their own to name."""
    with gateway({**QUICK, "STRETTO_SERVER__SOCKETS_PER_ADDRESS": "1"}) as narrow:
        async with peer(narrow.voice_url) as old:
            ready = await started(old, output="text")
            url = back(narrow, ready)
            for fields in ({}, {"resume": {"session_id": "sess_0123456789abcdef", "token": "t", "last_seq": 0}}):
                async with peer(url) as greedy:
                    await greedy.send(type="session.start", output="text", **fields)
                    code, frames = await greedy.closed()
                    assert (code, frames[-1]["code"], frames[-1]["retryable"]) == (1013, "overloaded", True)
            async with peer(url) as new:
                assert (await resumed(new, ready, 0))["resumed"] is True


async def test_who_lacks_what_is_kept_no_more_begins_anew_in_its_own_place(full: Running) -> None:
    async with peer(full.voice_url, key="alpha") as old, peer(back(full, ready := await started(old, output="text")), key="alpha") as new:
        again = await resumed(new, ready, 10_000)
        assert again["resumed"] is False
        assert again["session_id"] != ready["session_id"]
        assert (await old.closed())[0] == 4001
        await new.send(type="text", text="Hello?")
        await new.until("segment")


async def test_the_user_of_a_ticket_is_known_without_saying_which_session(full: Running) -> None:
    async def ticket(user: str) -> str:
        answer, body = await asyncio.to_thread(partial(ask, full, {"user": user}))
        assert answer == 201
        return str(body["ticket"])

    async with peer(full.voice_url, key=await ticket("ann")) as old:
        ready = await started(old, output="text")
        with pytest.raises(InvalidStatus):
            async with peer(full.voice_url, key=await ticket("bob")):
                pass
        async with peer(full.voice_url, key=await ticket("ann")) as new:
            assert (await resumed(new, ready, 0))["resumed"] is True


async def refused(outbox: Outbox) -> None:
    with pytest.raises(Superseded):
        await outbox.next()
