"""What processes tell the book of the keys, what it answers, and how far beyond a limit a key can get between them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
import uvloop
from prometheus_client import CollectorRegistry, Gauge

from gateway.config import KeySettings
from gateway.errors import TooManySessions
from gateway.ledger import MOST_LEFT, Ledger
from gateway.quota import HOUR_S, LEASE_S, MINUTE_S, N_SLOTS, Account, Quota, Report, SlidingSum, Told, wait_s
from gateway.settling import SETTLE_S, Settling
from gateway.workers.book import BookKeeper, ParentBook


class Book:
    """A ledger that can be away, slow, and lose its answers."""

    def __init__(self, holder: str, ledger: Ledger) -> None:
        self.is_away = self.loses_answers = False
        self.n_asked = 0
        self._holder, self._ledger = holder, ledger

    async def settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
        self.n_asked += 1
        await asyncio.sleep(0)
        if self.is_away:
            return None
        told = [self._ledger.settle(self._holder, report, Clock.now_s) for report in reports]
        return None if self.loses_answers else told


class Clock:
    now_s = 1000.0


class Process:
    """One gateway, less everything that is no counting."""

    def __init__(self, name: str, ledger: Ledger, limits: KeySettings) -> None:
        self.quota = Quota({"kiosk": limits}, is_shared=True)
        self.account: Account = self.quota.of("kiosk")
        self.book = Book(name, ledger)
        self.alone = Gauge("alone", "1: counts alone", registry=CollectorRegistry())
        self.settling = Settling(self.quota, self.book, self.alone, lambda: Clock.now_s)

    async def opens(self) -> bool:
        """Whether one more conversation is let in."""
        try:
            await self.settling.enter("kiosk")
        except TooManySessions:
            return False
        self.account.n_sessions += 1
        return True

    def begins(self) -> bool:
        """Whether one more turn is."""
        if self.account.turn_refusal(Clock.now_s) is not None:
            return False
        self.account.begin_turn(Clock.now_s)
        return True


def processes(count: int, **limits: int) -> list[Process]:
    ledger = Ledger()
    Clock.now_s = 1000.0
    return [Process(str(number), ledger, msgspec.convert({"key": "k", **limits}, KeySettings)) for number in range(count)]


async def test_of_many_who_want_the_last_place_at_once_one_gets_it() -> None:
    row = processes(4, sessions=7)
    answers = await asyncio.gather(*(process.opens() for process in row for _ in range(5)))
    assert sum(answers) == 7
    row[0].account.n_sessions -= 1
    await row[0].settling.settle()
    assert sum(await asyncio.gather(*(process.opens() for process in row))) == 1


async def test_a_key_with_its_places_taken_here_asks_nobody() -> None:
    (one,) = processes(1, sessions=1)
    assert [await one.opens() for _ in range(50)].count(True) == 1
    assert one.book.n_asked == 1


async def test_no_key_waits_for_another_and_nobody_for_ever_at_a_book_that_hangs() -> None:
    ledger = Ledger()
    quota = Quota({name: KeySettings(key=name, sessions=5) for name in ("one", "two")}, is_shared=True)

    class Hanging(Book):
        async def settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
            if any(report.account == "one" for report in reports):
                await asyncio.Event().wait()
            return await super().settle(reports)

    alone = Gauge("alone", "1: counts alone", registry=CollectorRegistry())
    settling = Settling(quota, Hanging("0", ledger), alone, lambda: Clock.now_s)
    order: list[str] = []

    async def enter(name: str) -> None:
        await settling.enter(name)
        order.append(name)

    await asyncio.gather(*(enter(name) for name in ("one", "one", "one", "two")))
    assert order == ["two", "one", "one", "one"]
    assert alone._value.get() == 1, "who was let in without the book says that it is away"


async def test_a_place_that_was_granted_and_not_taken_is_free_again() -> None:
    one, two = processes(2, sessions=1)
    await one.settling.enter("kiosk")  # and then the voice that it asked for does not exist
    assert not await two.opens()
    await one.settling.settle()
    assert await two.opens()


@pytest.mark.parametrize("n_processes", [2, 5])
async def test_turns_beyond_a_limit_are_those_that_the_others_begin_before_they_hear_of_it(n_processes: int) -> None:
    """As fast as anybody can, on all processes at once; each settles at its own moment."""
    for seed in range(4):
        chance, row = random.Random(seed), processes(n_processes, turns_per_min=60)
        for process in row:
            await process.opens()
        next_s = [Clock.now_s + chance.random() * SETTLE_S for _ in row]
        begun: list[float] = []
        while Clock.now_s < 1005:
            Clock.now_s += 0.01
            for at, process in enumerate(row):
                begun += [Clock.now_s] * process.begins()
                if Clock.now_s >= next_s[at]:
                    await process.settling.settle()
                    next_s[at] += SETTLE_S
        fastest = 1 + round(2 * SETTLE_S / 0.01)  # of one process, until it hears what another one has begun
        assert 60 <= len(begun) <= 60 + (n_processes - 1) * fastest
        for process in row:
            refusal = process.account.turn_refusal(Clock.now_s)
            assert refusal is not None
            assert refusal.retry_after_ms is not None
            Clock.now_s += refusal.retry_after_ms / 1000
            assert process.account.turn_refusal(Clock.now_s) is None, "it may when it was told so"
            Clock.now_s -= refusal.retry_after_ms / 1000


async def test_nothing_is_lost_or_counted_twice_however_the_book_fails() -> None:
    for seed in range(30):
        chance, row = random.Random(seed), processes(3, tokens_per_h=10**9)
        spent = 0
        for process in row:
            await process.opens()
        for _ in range(200):
            Clock.now_s += chance.random()
            process = chance.choice(row)
            process.book.is_away, process.book.loses_answers = chance.random() < 0.2, chance.random() < 0.2
            if chance.random() < 0.7:
                amount = chance.randint(1, 50)
                spent += amount
                process.account.spend(amount, 0.0, Clock.now_s)
            await process.settling.settle()
        for process in (*row, *row, *row):  # what was on its way, what was owed behind it, and all hear of it
            process.book.is_away = process.book.loses_answers = False
            await process.settling.settle()
        for process in row:
            assert process.account.tokens_hour.used(Clock.now_s) == spent
            assert process.account.tokens_day.used(Clock.now_s) == spent


async def test_one_that_comes_later_knows_what_was_used_before() -> None:
    one, two = processes(2, tokens_per_day=100)
    await one.opens()
    one.account.spend(100, 0.0, Clock.now_s)
    await one.settling.settle()
    Clock.now_s += 5 * HOUR_S
    assert two.begins(), "nobody has opened a conversation there"
    await two.opens()
    assert not two.begins()
    Clock.now_s += 20 * HOUR_S
    await two.settling.settle()
    assert two.begins()


async def test_without_the_book_each_counts_alone_and_pays_later() -> None:
    one, two = processes(2, sessions=2, turns_per_min=3)
    assert await two.opens()
    assert await one.opens()
    for process in (one, two):
        process.book.is_away = True
    assert not await one.opens(), "what was heard a moment ago still holds"
    Clock.now_s += LEASE_S + 1
    assert await one.opens(), "what was heard long ago does not: the limit is each one's own"
    assert not await one.opens()
    assert one.alone._value.get() == 1
    assert [process.begins() for process in (one, one, one, one, two, two, two, two)].count(True) == 6
    for process in (one, two, one):
        process.book.is_away = False
        await process.settling.settle()
    assert one.account.turns.used(Clock.now_s) == two.account.turns.used(Clock.now_s) == 6
    assert one.alone._value.get() == 0
    assert not one.begins()
    assert one.account.n_elsewhere(Clock.now_s) == 1


async def test_while_the_book_is_away_what_is_owed_is_forgotten_with_time() -> None:
    one, two = processes(2, turns_per_min=3)
    assert await one.opens()
    one.book.is_away = True
    for _ in range(3):
        assert [one.begins() for _ in range(4)].count(True) == 3, "a limit of its own, each minute anew"
        await one.settling.settle()
        refusal = one.account.turn_refusal(Clock.now_s)
        assert refusal is not None
        assert refusal.retry_after_ms is not None
        assert MINUTE_S <= refusal.retry_after_ms / 1000 <= MINUTE_S * (1 + 1 / N_SLOTS)
        Clock.now_s += refusal.retry_after_ms / 1000
    one.book.is_away = False
    for process in (one, one, two):
        await process.settling.settle()
    assert two.begins(), "what is forgotten is not paid"
    assert [one.begins() for _ in range(4)].count(True) == 3


async def test_the_places_of_one_that_is_gone_are_free_and_its_use_stays() -> None:
    ledger = Ledger()
    one, two = (Process(name, ledger, KeySettings(key="k", sessions=1, turns_per_min=1)) for name in "ab")
    assert await one.opens()
    assert one.begins()
    await one.settling.settle()
    assert not await two.opens()
    ledger.leave("a")
    assert await two.opens()
    assert not two.begins()


def test_processes_that_are_gone_for_good_are_forgotten() -> None:
    """A worker that dies again and again has another name each time."""
    ledger = Ledger()
    used = Report(account="kiosk", n_sessions=1, number=1, spent=(1.0, 0.0, 0.0, 0.0))
    for number in range(1000):
        ledger.settle(str(number), used, 1000.0)
        ledger.leave(str(number))
    told = ledger.settle("999", used, 1000.0)
    assert (told.n_elsewhere, sum(told.amounts[0])) == (0, 1000.0), "what they used stays, and who only hung up is counted once"
    assert len(ledger._leaves["kiosk"].held) <= MOST_LEFT


async def test_a_conversation_that_ended_while_the_book_was_away_is_forgotten_there_when_it_is_back() -> None:
    one, two = processes(2, sessions=1)
    one.book.loses_answers = True
    assert await one.opens()
    one.account.n_sessions = 0
    await one.settling.settle()
    assert one.alone._value.get() == 1
    one.book.loses_answers = False
    await one.settling.settle()
    assert one.alone._value.get() == 0
    assert await two.opens()
    assert one.book.n_asked == 3
    await one.settling.settle()
    assert one.book.n_asked == 3, "there is no news"


async def test_keys_without_limits_and_keys_that_do_not_talk_cost_nothing() -> None:
    free, idle = processes(1)[0], processes(1, turns_per_min=1)[0]
    assert await free.opens()
    assert free.begins()
    for process in (free, idle):
        await process.settling.settle()
        assert process.book.n_asked == 0
    assert free.account.turns.used(Clock.now_s) == 1


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_worker_that_hangs_up_holds_nothing_and_one_that_calls_again_is_counted_once(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene(path: Path) -> None:
        now = asyncio.get_running_loop().time
        one, two = ParentBook(path, now), ParentBook(path, now)
        assert await two.settle([]) is None, "nobody keeps a book yet"
        two = ParentBook(path, now)  # the other one rests a second before it asks again
        asks = Report(account="kiosk", n_sessions=1, most_sessions=1, number=1, spent=(1.0, 0.0, 0.0, 0.0))
        async with asyncio.TaskGroup() as tasks:
            keeper = tasks.create_task(BookKeeper(now).run(path), name="book")
            while await one.settle([]) is None:  # until the keeper is there
                one = ParentBook(path, now)
                await asyncio.sleep(0.001)
            for _ in range(2):
                (told,) = await one.settle([asks]) or [None]
                assert told is not None
                assert (told.is_granted, sum(told.amounts[0])) == (True, 1.0)
                one.close()
            (told,) = await one.settle([asks]) or [None]
            await asyncio.sleep(0.01)  # for the keeper to notice, if it is to be wrong, that an older line has ended
            (told,) = await two.settle([asks]) or [None]
            assert told is not None
            assert (told.is_granted, told.n_elsewhere, sum(told.amounts[0])) == (False, 1, 2.0)
            one.close()
            while not (told.is_granted and told.n_elsewhere == 0):
                (told,) = await two.settle([asks]) or [None]
                assert told is not None
            assert sum(told.amounts[0]) == 2.0
            two.close()
            keeper.cancel()

    with asyncio.Runner(loop_factory=new_loop) as runner, tempfile.TemporaryDirectory(prefix="stretto-") as folder:
        runner.run(scene(Path(folder) / "book.sock"))


def test_what_a_book_tells_of_a_sum_is_bounded_and_makes_a_copy() -> None:
    chance = random.Random(5)
    book, copy, now = SlidingSum(60.0), SlidingSum(60.0), 500.0
    for _ in range(500):
        now += chance.choice((0.0, 0.3, 3.0, 90.0)) * chance.random()
        book.add(chance.randint(1, 5), now)
        if chance.random() < 0.3:
            first, amounts = book.since(copy.unheard, now)
            assert len(amounts) <= N_SLOTS + 1
            copy.correct(first, amounts)
            assert copy.used(now) == pytest.approx(book.used(now))
            limit = chance.randint(1, 20)
            assert wait_s(copy.parts(now), limit) == wait_s(book.parts(now), limit)
