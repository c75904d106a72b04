"""A key's limits over several processes: workers with their parent's book, gateways with one in Redis.

Which worker a client comes to is the system's choice. What is claimed here holds while the book answers, so a run in which a process said
that it counted alone, as it may on a machine that stands still for a second, is had again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import secrets
import signal
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from redis import Redis

from gateway.ledger import Ledger
from gateway.metrics import Metrics
from gateway.quota import LEASE_S, WINDOWS_S, Report
from gateway.redis_store import RedisStore
from tests.doubles.redis_server import RedisServer, redis_server
from tests.protocol.peer import Peer, peer
from tests.protocol.test_workers import QUICK
from tests.running import Running, gateway

LIMITS = {
    **QUICK,
    "STRETTO_SESSION__MAX_SESSIONS": "60",
    "STRETTO_KEYS__SMALL__KEY": "small-key",
    "STRETTO_KEYS__SMALL__SESSIONS": "3",
    "STRETTO_KEYS__DEAR__KEY": "dear-key",
    "STRETTO_KEYS__DEAR__TOKENS_PER_H": "40",
    "STRETTO_KEYS__OTHER__KEY": "other-key",
    "STRETTO_KEYS__OTHER__SESSIONS": "2",
}
PATIENCE_S = 30.0  # for what takes a tenth of a second
TRIES = 5
CROWD = 16  # clients at once: of so many, some come to either worker


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


class House:
    """Doors at which the same key may come in, and the book behind them."""

    def __init__(self, doors: list[Running], n_processes: int, hang: Callable[[], None], go_on: Callable[[], None]) -> None:
        self.doors, self.n_processes, self.hang, self.go_on = doors, n_processes, hang, go_on

    @property
    def n_times_alone(self) -> int:
        return sum("book of the keys is away" in line for door in self.doors for line in door.lines)

    def metric(self, name: str) -> list[float]:
        """Of all processes."""
        found: list[float] = []
        for door in self.doors:
            request = urllib.request.Request(f"{door.http_url}/metrics", headers={"Authorization": "Bearer main"})
            with urllib.request.urlopen(request, timeout=10) as answer:
                found += map(float, re.findall(rf"^{name}(?:{{.*}})? (\S+)$", answer.read().decode(), re.MULTILINE))
        return found

    async def until(self, name: str, is_so: Callable[[list[float]], bool]) -> None:
        """Wait until this metric is so in all processes."""
        async with asyncio.timeout(PATIENCE_S):
            while not (len(found := await asyncio.to_thread(self.metric, name)) == self.n_processes and is_so(found)):
                await asyncio.sleep(0.05)


@contextlib.contextmanager
def house(kind: str, redis: RedisServer) -> Iterator[House]:
    """Two workers behind one port, or two workers and a gateway of its own, which share a Redis."""
    shared = {**LIMITS, "STRETTO_SESSION__STORE_URL": redis.url, "STRETTO_SESSION__STORE_PREFIX": f"{secrets.token_hex(4)}:"}
    with ExitStack() as stack:
        if kind == "workers":
            row = stack.enter_context(gateway(LIMITS, "--workers", "2"))
            stop, go_on = (lambda number=number: row.process.send_signal(number) for number in (signal.SIGSTOP, signal.SIGCONT))
            yield House([row], 2, stop, go_on)
        else:
            doors = [stack.enter_context(gateway(shared, "--workers", "2")), stack.enter_context(gateway(shared))]
            yield House(doors, 3, redis.hang, redis.go_on)


@pytest.fixture(scope="module", params=["workers", "redis"])
def whole(request: pytest.FixtureRequest, redis: RedisServer) -> Iterator[House]:
    with house(request.param, redis) as built:
        yield built


@pytest.fixture(params=["workers", "redis"])
def broken(request: pytest.FixtureRequest) -> Iterator[House]:
    """One whose book the test stops, with a Redis of its own."""
    with redis_server() as own, house(request.param, own) as built:
        yield built
        built.go_on()


@asynccontextmanager
async def talking(house: House, key: str, n_clients: int) -> AsyncIterator[list[Peer]]:
    """So many clients of the key, all at once, at one door after the other; those that were let in."""

    async def knock(stack: AsyncExitStack, running: Running) -> Peer | None:
        client = await stack.enter_async_context(peer(running.voice_url, key=key))
        await client.send(type="session.start", output="text")
        answer = await client.receive()
        if answer["type"] == "session.ready":
            return client
        assert answer["code"] == "quota_exceeded"
        return None

    async with AsyncExitStack() as stack:
        knocks = [knock(stack, house.doors[number % len(house.doors)]) for number in range(n_clients)]
        clients = [client for client in await asyncio.gather(*knocks) if client is not None]
        yield clients
        for client in clients:
            await client.socket.close(1000)


async def has_turn(client: Peer) -> bool:
    """Whether one more was had."""
    await client.send(type="text", text="Hello?")
    while True:
        frame = await client.receive()
        if frame["type"] == "error":
            assert frame["code"] == "quota_exceeded"
            assert frame["retry_after_ms"] > 0
            return False
        if frame["type"] == "turn.done":
            return True


async def test_a_key_has_its_conversations_once_and_not_once_a_process(whole: House) -> None:
    for _ in range(TRIES):
        before = whole.n_times_alone
        await whole.until("stretto_sessions", lambda found: not sum(found))
        async with talking(whole, "small-key", CROWD) as clients, talking(whole, "other-key", 2) as others:
            n_again = 0
            await clients[0].socket.close(1000)
            async with asyncio.timeout(PATIENCE_S):
                while not n_again:
                    async with talking(whole, "small-key", CROWD) as again:
                        n_again = len(again)
        if whole.n_times_alone == before:
            assert len(clients) == 3, "to the last place exactly, though all came at once"
            assert len(others) == 2, "another key does not notice"
            assert n_again == 1, "a place that is free again is one place"
            return
    pytest.fail("the book never answered for long enough")


async def test_what_is_used_in_one_process_is_missing_in_all(whole: House) -> None:
    async with talking(whole, "dear-key", 1) as (client,):
        async with asyncio.timeout(PATIENCE_S):
            while await has_turn(client):
                pass
        for _ in range(TRIES):
            before = whole.n_times_alone
            # Who comes in asks the book, and its process pays what it owes then: the first crowd makes all pay, the second one all hear.
            async with talking(whole, "dear-key", CROWD) as payers:
                spread = await asyncio.to_thread(whole.metric, "stretto_sessions")
            async with talking(whole, "dear-key", CROWD) as hearers:
                spread += await asyncio.to_thread(whole.metric, "stretto_sessions")
                had = await asyncio.gather(*map(has_turn, hearers))
            if all(spread) and whole.n_times_alone == before:
                assert len(payers) == len(hearers) == CROWD
                assert not any(had)
                return
    pytest.fail("the crowd never came to all processes with the book at hand")


async def test_while_the_book_is_away_each_process_counts_alone_and_nobody_waits_for_it(broken: House) -> None:
    async with talking(broken, "dear-key", 1) as (talker,):
        broken.hang()
        assert await has_turn(talker), "no turn waits for it"
        async with talking(broken, "other-key", CROWD) as clients:
            assert 2 <= len(clients) <= 2 * broken.n_processes, "the limit is each one's own"
        broken.go_on()
        await broken.until("stretto_quota_alone", lambda found: not any(found))
        async with asyncio.timeout(PATIENCE_S):
            while await has_turn(talker):
                pass
        assert broken.n_times_alone > 0


async def test_redis_keeps_the_same_book_as_memory(redis: RedisServer) -> None:
    """The same reports to both; only their clocks differ."""
    chance, ledger = random.Random(11), Ledger()
    metrics = Metrics(CollectorRegistry()).process.store
    stores = [RedisStore(redis.url, "same:", 60.0, metrics, time.monotonic) for _ in range(3)]
    books = [store.book() for store in stores]
    numbers = [0, 0, 0]
    for _ in range(120):
        at, key = chance.randrange(3), chance.choice("ab")
        numbers[at] += chance.random() < 0.8  # else the last report once more
        report = Report(
            account=key,
            n_sessions=chance.randint(0, 4),
            most_sessions=chance.choice((0, 5)),
            number=numbers[at],
            spent=tuple(chance.choice((0.0, 1.0, 2.5)) for _ in WINDOWS_S),
        )
        if report.most_sessions and not report.n_sessions:
            continue
        answers = await books[at].settle([report])
        assert answers is not None
        (told,) = answers
        assert told is not None
        known = ledger.settle(str(at), report, told.now_s)
        assert (told.is_granted, told.n_elsewhere) == (known.is_granted, known.n_elsewhere)
        assert [sum(amounts) for amounts in told.amounts] == [sum(amounts) for amounts in known.amounts]
        assert told.first == known.first
    for store in stores:
        await store.close()


async def test_in_redis_the_conversations_of_a_dead_process_end_with_its_lease_and_old_use_goes(redis: RedisServer) -> None:
    store = RedisStore(redis.url, "lease:", 60.0, Metrics(CollectorRegistry()).process.store, time.monotonic)
    book, report = store.book(), Report(account="a", n_sessions=1, most_sessions=3, number=1, spent=(1.0, 0.0, 0.0, 0.0))
    with Redis.from_url(redis.url) as client:
        seconds = int(client.time()[0])
        client.hset("lease:quota:held:a", mapping={"dead": f"2 {seconds - 1} 7", "alive": f"2 {seconds + 100} 7", "long dead": "9 5 1"})
        client.hset("lease:quota:use:a", mapping={"1:5": "100", "2:5": "100", "noise": "x"})
        answers = await book.settle([report])
        assert answers is not None
        assert answers[0] is not None
        assert (answers[0].is_granted, answers[0].n_elsewhere, sum(answers[0].amounts[0])) == (True, 2, 1.0)
        held, use = client.hgetall("lease:quota:held:a"), client.hgetall("lease:quota:use:a")
        assert b"long dead" not in held
        assert {b"1:5", b"noise"}.isdisjoint(use)
        assert b"2:5" in use, "of another sum, which goes when that one is next added to"
        assert 0 < client.ttl("lease:quota:held:a") < 100_000
        assert 0 < client.ttl("lease:quota:use:a") < 100_000
        (mine,) = (value for name, value in held.items() if name not in (b"dead", b"alive"))
        assert seconds <= int(mine.split()[1]) <= seconds + 60 + LEASE_S
        client.set("lease:quota:held:b", "no hash")
        slot = int(client.time()[0]) // 86_400 * 60 + 59  # of the day's sum, one that is told for a while
        client.hset("lease:quota:use:c", mapping={f"3:{slot - at}": "x" for at in range(61)})
        healed, spoilt, good = await book.settle([*(Report(account=name, n_sessions=1) for name in "bc"), report]) or ()
        assert spoilt is None
        assert healed is not None
        assert good is not None, "one key's page that cannot be read keeps no other key from being counted"
    await store.close()
