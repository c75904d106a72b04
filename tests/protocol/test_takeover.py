"""A phone changes networks: it is back on a new socket while the old one is not yet known to be dead."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from gateway.errors import Superseded
from gateway.events import Pong
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from tests.protocol.peer import Frame, Peer, peer
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


async def refused(outbox: Outbox) -> None:
    with pytest.raises(Superseded):
        await outbox.next()
