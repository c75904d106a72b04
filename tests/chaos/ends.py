"""SIGTERM while people talk: once, and twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from msgspec import Struct
from websockets.exceptions import ConnectionClosed

from tests.chaos.crowd import Crowd
from tests.chaos.faults import Found, Row
from tests.chaos.processes import children, watch_end
from tests.protocol.peer import Peer, peer
from tests.running import Running

TOLD_S = 1.0  # from the first signal to `going_away` at a client that says nothing
HURRY_S = 0.5  # between the two signals
CLOSED_S, GONE_S = 1.0, 6.0  # after the second: sockets; processes, of which each worker is killed after 3.5 s
LEFT_S = 30.0  # what still runs then stays


class Told(Struct):
    """What clients that say nothing are told, in seconds on the loop's clock; None: nothing."""

    going_away_s: list[float | None]


async def terminated(found: Found, people: Crowd, running: Running) -> None:
    """SIGTERM while all talk: replies come to their end, then everybody is told."""
    async with listening(running) as told:
        pids, from_s = [running.process.pid, *children(running.process.pid)], people.now()
        running.process.send_signal(signal.SIGTERM)
        ended = asyncio.to_thread(watch_end, pids, running.port, LEFT_S)
        status, (_, _, n_left) = await asyncio.gather(asyncio.to_thread(running.process.wait, LEFT_S), ended)
        exited_s = people.now()
        await all_told(people, from_s)
    ends = [s for s in people.seen(from_s, exited_s + 1, "ended") if s.asked_s < from_s]
    lost = [s for s in ends if s.word != "completed"]
    waits = warned(told, from_s)
    row = Row(
        name="SIGTERM under load",
        n_told=len({s.who for s in people.seen(from_s, people.now(), "told", "lost")}),
        told_ms=max(waits, default=None),
        n_late=sum(wait > 1000 * TOLD_S for wait in waits),
        n_disturbed=len(lost),
        recovered_s=exited_s - from_s,
        metric="",
        counted=0,
        note=f"{len(ends)} replies came to their end, {n_left} of {len(pids)} processes left",
    )
    wrong = [f"{len(lost)} replies were cut"] if lost else []
    found.add(row, [f"SIGTERM: {each}" for each in [*wrong, *unclean(status, told, n_left), *late(found, row)]])


async def terminated_twice(found: Found, people: Crowd, running: Running, gone_within_s: float = GONE_S) -> None:
    """A second SIGTERM does not wait for replies: sockets close, processes end, nobody is left."""
    async with listening(running) as told:
        pids, from_s = [running.process.pid, *children(running.process.pid)], people.now()
        running.process.send_signal(signal.SIGTERM)
        await asyncio.sleep(HURRY_S)
        running.process.send_signal(signal.SIGTERM)
        ended = asyncio.to_thread(watch_end, pids, running.port, LEFT_S)
        second_s = people.now()
        status, (sockets_s, _, n_left) = await asyncio.gather(asyncio.to_thread(running.process.wait, LEFT_S), ended)
        gone_s = people.now() - second_s
        await all_told(people, from_s)
    waits = warned(told, from_s)
    row = Row(
        name="a second SIGTERM",
        n_told=len({s.who for s in people.seen(from_s, people.now(), "told", "lost")}),
        told_ms=max(waits, default=None),
        n_late=sum(wait > 1000 * TOLD_S for wait in waits),
        n_disturbed=0,
        recovered_s=gone_s,
        metric="",
        counted=0,
        note=f"last socket closed after {sockets_s:.2f} s, {len(pids)} processes gone after {gone_s:.2f} s",
    )
    wrong = unclean(status, told, n_left) + late(found, row)
    if found.is_timed and sockets_s > CLOSED_S:
        wrong.append(f"a socket was open {sockets_s:.2f} s after it, at most {CLOSED_S:g} s")
    if found.is_timed and gone_s > gone_within_s:
        wrong.append(f"a process ran {gone_s:.2f} s after it, at most {gone_within_s:g} s")
    found.add(row, [f"second SIGTERM: {each}" for each in wrong])


def unclean(status: int, told: Told, n_left: int) -> list[str]:
    """What is wrong however slow the machine is."""
    wrong = [f"the gateway ended with {status}"] if status else []
    if n_left:
        wrong.append(f"{n_left} processes are left")
    if None in told.going_away_s:
        wrong.append("a client that said nothing was not told going_away")
    return wrong


def late(found: Found, row: Row) -> list[str]:
    """Where the machine has time."""
    return [f"{row.n_late} were told more than {TOLD_S:g} s after it"] if found.is_timed and row.n_late else []


def warned(told: Told, from_s: float) -> list[float]:
    """Milliseconds."""
    return [1000 * (at_s - from_s) for at_s in told.going_away_s if at_s is not None]


@asynccontextmanager
async def listening(running: Running, n_clients: int = 5) -> AsyncIterator[Told]:
    """Clients that say nothing; at the end all have been closed."""
    told = Told([None] * n_clients)
    ready = asyncio.Barrier(n_clients + 1)
    async with asyncio.TaskGroup() as tasks:
        for number in range(n_clients):
            tasks.create_task(_listen(running, told, number, ready), name=f"listener {number}")
        await ready.wait()
        yield told


async def _listen(running: Running, told: Told, number: int, ready: asyncio.Barrier) -> None:
    async with peer(running.voice_url, start={"output": "text"}) as client:
        await ready.wait()
        with suppress(ConnectionClosed):
            await _until_closed(client, told, number)


async def _until_closed(client: Peer, told: Told, number: int) -> None:
    loop = asyncio.get_running_loop()
    while True:
        frame = await client.receive()
        if frame["type"] == "going_away":
            told.going_away_s[number] = loop.time()


async def all_told(people: Crowd, from_s: float) -> None:
    """Clients look for another gateway for some seconds before they give a conversation up."""
    ends_at = people.now() + 10
    while people.now() < ends_at and len({s.who for s in people.seen(from_s, people.now(), "told", "lost")}) < len(people.people):
        await asyncio.sleep(0.1)
