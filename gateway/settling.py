"""Keeps this process's accounts and the book that it shares with others in step.

Ten times a second it pays what the keys that talk here have used and hears what they used elsewhere. Only who opens a conversation waits
for the book, so that a key never has more of them than it may; turns are judged by what was heard last. While the book is away, each
process goes on with what it knows: it owes, and pays when the book is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from prometheus_client import Gauge

from gateway.quota import Account, Quota, Report, Told

SETTLE_S = 0.1  # what others used is known at most twice that later, and the book's answer
AT_ONCE = 32  # keys in one question
DOOR_S = 1.0  # that who opens a conversation waits at most, the others of its key in front of it included

log = logging.getLogger("stretto.quota")


class Book(Protocol):
    """One for all processes that share the keys."""

    async def settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
        """The answers, within about a second; None (all of them, or one) where there is none now. A cancel leaves it usable."""


class Settling:
    """`book` None: this process counts alone. `alone`: 1 while the book is away."""

    def __init__(self, quota: Quota, book: Book | None, alone: Gauge, now: Callable[[], float]) -> None:
        self._quota, self._book, self._alone, self._now = quota, book, alone, now
        self._asking: dict[str, asyncio.Lock] = {}  # by key: what is told second must be entered second, and no key waits for another
        self._is_away = False

    async def enter(self, key: str) -> None:
        """One more conversation of this key wants to begin; until the caller waits again it has its place. Raises `TooManySessions`.

        Where the book does not answer, what this process knows decides.
        """
        account = self._quota.of(key)
        if self._book is not None and account.is_bounded and account.has_room_here:
            told: Told | None = None
            try:
                async with asyncio.timeout(DOOR_S), self._lock(account):
                    (told,) = await self._ask(self._book, [account], asks=True)
            except TimeoutError:
                self._tell(is_away=True)
            if told is not None:
                if not told.is_granted:
                    raise account.too_many()
                return
        if (refusal := account.session_refusal(self._now())) is not None:
            raise refusal

    async def settle(self) -> None:
        """Pay and hear, for every key that there is news of."""
        if self._book is None:
            return
        due = [account for account in self._quota.accounts() if account.has_news]
        for at in range(0, len(due), AT_ONCE):
            async with contextlib.AsyncExitStack() as held:
                free = [account for account in due[at : at + AT_ONCE] if not self._lock(account).locked()]
                for account in free:  # who asks at the door for one of the others pays for it, too
                    await held.enter_async_context(self._lock(account))
                if free:
                    await self._ask(self._book, free)

    async def finish(self) -> None:
        """The last turns count, too: pay what was on its way, and then what is owed behind it."""
        for _ in range(2):
            await self.settle()

    async def run(self) -> None:
        """Until cancelled."""
        while self._book is not None:
            await self.settle()
            await asyncio.sleep(SETTLE_S)

    async def _ask(self, book: Book, accounts: Sequence[Account], *, asks: bool = False) -> Sequence[Told | None]:
        reports = [account.report(self._now(), asks=asks) for account in accounts]
        answers = await book.settle(reports)
        told: Sequence[Told | None] = [None] * len(accounts) if answers is None else answers
        now = self._now()
        for account, report, answer in zip(accounts, reports, told, strict=True):
            if answer is not None:
                account.settle(report, answer, now)
        self._tell(is_away=None in told)
        return told

    def _lock(self, account: Account) -> asyncio.Lock:
        return self._asking.setdefault(account.name, asyncio.Lock())

    def _tell(self, *, is_away: bool) -> None:
        if is_away != self._is_away:
            self._is_away = is_away
            self._alone.set(is_away)
            log.warning("book of the keys is away; each gateway counts alone" if is_away else "book of the keys is back")
