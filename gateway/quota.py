"""What each key has used, and what it may use: conversations at once, turns, tokens and seconds of audio over a sliding time.

Pure; the time comes in as seconds of the loop's clock. An account counts for every key, bounded or not, so that whoever shares capacity
out can see who holds it. What a turn costs is known when it ends, so the last turn may go beyond a limit; the next one is refused. Only
configured keys have accounts: their number is bounded by the settings.

Alone, a process counts for itself and begins anew with each start. Where several share a book (`ledger`), an account is a copy of the
book's sums and what it owes on top: a turn is judged by that, without asking anybody, and `settling` pays and hears what the others paid.
What is owed is forgotten with time as if it were paid, so a book that is away for long makes no limit tighter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from gateway.admission import Elsewhere
from gateway.config import KeySettings
from gateway.errors import QuotaExceeded, TooManySessions

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
WINDOWS_S = (MINUTE_S, HOUR_S, DAY_S, HOUR_S)  # of turns, tokens, tokens, audio: the sums of an account, in this order
N_SLOTS = 60  # a sum forgets in steps of a sixtieth of its time
LEASE_S = 5.0  # for which the conversations of a process that says nothing any more are still counted
LIMITS = ("sessions", "turns", "tokens_hour", "tokens_day", "audio")  # what a refusal may be for
SESSION_WAIT_MS = 5000  # nobody knows when a conversation ends


class Report(Struct, frozen=True, kw_only=True):
    """What a process tells the book about a key. `spent`: by sum; it counts once, however often it is told under the same `number`, and
    as it was told when it was first heard: less each time, as it is forgotten.

    `n_sessions`: the key's conversations here; with `most_sessions` the last of them asks to come in, where no more than so many are.
    `first`: the slots from which on this process has not heard all, by sum.
    """

    account: str
    n_sessions: int
    most_sessions: int = 0
    number: int = 0
    spent: tuple[float, ...] = (0.0,) * len(WINDOWS_S)
    first: tuple[int, ...] = (0,) * len(WINDOWS_S)


class Told(Struct, frozen=True, kw_only=True):
    """The book's answer. `now_s`: its clock; `n_elsewhere`: conversations of all others; `first`, `amounts`: slots of each sum."""

    now_s: float
    is_granted: bool
    n_elsewhere: int
    first: tuple[int, ...]
    amounts: tuple[tuple[float, ...], ...]


class SlidingSum:
    """What was added within the last `window_s`, to a sixtieth of it, never too little.

    `unheard`: of a copy of the book's, the first slot to which the book may have come to hold more.
    """

    def __init__(self, window_s: float) -> None:
        self.unheard = 0
        self._window_s = window_s
        self._slot_s = window_s / N_SLOTS
        self._slots: deque[tuple[int, float]] = deque()
        self._sum = 0.0

    def add(self, amount: float, now: float) -> None:
        """Count it."""
        slot = self.slot(now)
        if self._slots and self._slots[-1][0] >= slot:
            last, before = self._slots.pop()
            self._slots.append((last, before + amount))
        else:
            self._slots.append((slot, amount))
        self._sum += amount

    def used(self, now: float) -> float:
        """The sum as of now."""
        while self._slots and self._ends(self._slots[0][0]) <= now:
            self._sum -= self._slots.popleft()[1]
        if not self._slots:
            self._sum = 0.0  # no rest of many additions
        return self._sum

    def parts(self, now: float) -> list[tuple[float, float]]:
        """What the sum is made of: in how many seconds it is forgotten, and how much it is."""
        self.used(now)
        return [(self._ends(slot) - now, amount) for slot, amount in self._slots]

    def slot(self, now: float) -> int:
        """The part of the time that `now` is in."""
        return int(now // self._slot_s)

    def since(self, first: int, now: float) -> tuple[int, tuple[float, ...]]:
        """The amounts of all slots from `first` to now's, and which the first one is: none that is over is told."""
        self.used(now)
        last = self.slot(now)
        first = min(max(first, last - N_SLOTS), last)
        kept = dict(self._slots)
        return first, tuple(kept.get(slot, 0.0) for slot in range(first, last + 1))

    def correct(self, first: int, amounts: Sequence[float]) -> None:
        """From `first` on the book has these."""
        while self._slots and self._slots[-1][0] >= first:
            self._sum -= self._slots.pop()[1]
        for slot, amount in enumerate(amounts, first):
            if amount:
                self._slots.append((slot, amount))
                self._sum += amount
        self.unheard = first + len(amounts) - 1

    def __len__(self) -> int:
        return len(self._slots)

    def _ends(self, slot: int) -> float:
        return (slot + 1) * self._slot_s + self._window_s


def wait_s(parts: Iterable[tuple[float, float]], limit: float) -> float:
    """Seconds until less than `limit` is used of sums with these `parts`."""
    ends = sorted(parts)
    left, waited_s = sum(amount for _, amount in ends), 0.0
    for in_s, amount in ends:
        if left < limit:
            break
        left, waited_s = left - amount, in_s
    return waited_s


def _sums() -> tuple[SlidingSum, ...]:
    return tuple(SlidingSum(window_s) for window_s in WINDOWS_S)


def _used(sums: Iterable[SlidingSum], now: float) -> tuple[float, ...]:
    return tuple(each.used(now) for each in sums)


class Account:
    """One key's. `is_shared`: other processes have accounts of it, and there is a book; `house`: what those of this machine hold."""

    def __init__(self, name: str, limits: KeySettings | None, *, is_shared: bool = False, house: Elsewhere | None = None) -> None:
        self.name = name
        self._n_sessions = 0
        self._house = house
        self.is_shared = is_shared
        self.turns, self.tokens_hour, self.tokens_day, self.audio_s = self._sums = _sums()
        self._owed = _sums()  # beside these, by our clock: what the book does not have yet
        self._on_way = _sums()  # and what it was told, and may have
        self._limits = limits
        self._n_elsewhere = 0
        self._heard_s = float("-inf")
        self._ahead_s = 0.0  # the book's clock less ours
        self._n_told = 0  # conversations here, as the book may know them
        self._number = 0  # of what is on its way

    @property
    def n_sessions(self) -> int:
        """Its conversations in this process."""
        return self._n_sessions

    @n_sessions.setter
    def n_sessions(self, number: int) -> None:
        if self._house is not None:
            self._house.tell(self.name, number - self._n_sessions)
        self._n_sessions = number

    @property
    def n_in_house(self) -> int:
        """Its conversations on this machine, whose places all keys share."""
        return self._n_sessions + (0 if self._house is None else self._house.others(self.name))

    @property
    def weight(self) -> float:
        """Of its share beside other keys."""
        return 1.0 if self._limits is None else self._limits.weight

    @property
    def is_bounded(self) -> bool:
        """Whether it has a limit at all."""
        own = self._limits
        return own is not None and any((own.sessions, own.turns_per_min, own.tokens_per_h, own.tokens_per_day, own.audio_s_per_h))

    @property
    def has_news(self) -> bool:
        """Whether the book and this account have anything to tell each other: while nobody talks here, they have not."""
        return self.is_bounded and (self.n_sessions > 0 or self._n_told > 0 or any(map(len, (*self._owed, *self._on_way))))

    @property
    def has_room_here(self) -> bool:
        """Whether this process alone would let one more conversation in: if not, nobody needs to be asked."""
        limit = 0 if self._limits is None else self._limits.sessions
        return not limit or self.n_sessions < limit

    def session_refusal(self, now: float) -> QuotaExceeded | None:
        """Why no further conversation may begin now, if so, as far as this process knows."""
        limit = 0 if self._limits is None else self._limits.sessions
        if limit and self.n_sessions + self.n_elsewhere(now) >= limit:
            return self.too_many()
        return None

    def too_many(self) -> QuotaExceeded:
        """The refusal of one more conversation."""
        limit = 0 if self._limits is None else self._limits.sessions
        fault = f"This key has {limit} conversations open, and may have no more at once."
        return TooManySessions(fault, limit="sessions", retry_after_ms=SESSION_WAIT_MS)

    def turn_refusal(self, now: float) -> QuotaExceeded | None:
        """Why no further turn may begin now, if so."""
        own = self._limits
        if own is None:
            return None
        sums = zip(self._sums, self._owed, self._on_way, strict=True)
        for (limit, kind, what), (paid, owed, on_way) in zip(
            (
                (own.turns_per_min, "turns", "turns a minute"),
                (own.tokens_per_h, "tokens_hour", "tokens an hour"),
                (own.tokens_per_day, "tokens_day", "tokens a day"),
                (own.audio_s_per_h, "audio", "seconds of audio an hour"),
            ),
            sums,
            strict=True,
        ):
            if limit and paid.used(now + self._ahead_s) + owed.used(now) + on_way.used(now) >= limit:
                left_s = wait_s((*paid.parts(now + self._ahead_s), *owed.parts(now), *on_way.parts(now)), limit)
                fault = f"This key may use {limit} {what}; there is room again in {math.ceil(left_s)} s."
                return QuotaExceeded(fault, limit=kind, retry_after_ms=math.ceil(left_s * 1000))
        return None

    def begin_turn(self, now: float) -> None:
        """A turn was asked for."""
        self._count((1, 0, 0, 0.0), now)

    def spend(self, tokens: int, audio_s: float, now: float) -> None:
        """What a turn came to."""
        self._count((0, tokens, tokens, audio_s), now)

    def report(self, now: float, *, asks: bool = False) -> Report:
        """For the book: what is owed, and with `asks` one conversation more than there are, which wants to begin."""
        if not any(spent := _used(self._on_way, now)) and any(owed := _used(self._owed, now)):
            self._number, spent = self._number + 1, owed
            self._on_way, self._owed = self._owed, _sums()
        n_sessions = self.n_sessions + int(asks)
        self._n_told = max(self._n_told, n_sessions)  # it may hear this, though we may not hear its answer
        return Report(
            account=self.name,
            n_sessions=n_sessions,
            most_sessions=self._limits.sessions if asks and self._limits is not None else 0,
            number=self._number,
            spent=spent,
            first=tuple(each.unheard for each in self._sums),
        )

    def settle(self, report: Report, told: Told, now: float) -> None:
        """The book has what this report said, the last one, and answers so. Where it does not answer, the same is told again."""
        for each, first, amounts in zip(self._sums, told.first, told.amounts, strict=True):
            each.correct(first, amounts)
        self._on_way = _sums()
        self._n_told = report.n_sessions
        self._n_elsewhere, self._heard_s, self._ahead_s = told.n_elsewhere, now, told.now_s - now

    def n_elsewhere(self, now: float) -> int:
        """The key's conversations in other processes, as last heard; 0 when that is long ago."""
        return self._n_elsewhere if now - self._heard_s < LEASE_S else 0

    def _count(self, amounts: Sequence[float], now: float) -> None:
        for each, amount in zip(self._owed if self.is_shared and self.is_bounded else self._sums, amounts, strict=True):
            if amount:
                each.add(amount, now)


class Quota:
    """The accounts of all keys. A key is known by its name in [keys.NAME], else by its holder id; "" is everyone where no keys are.

    `is_shared`, `house`: as an account's.
    """

    def __init__(self, keys: Mapping[str, KeySettings] | None = None, *, is_shared: bool = False, house: Elsewhere | None = None) -> None:
        self._house = house
        self._accounts = {name: Account(name, limits, is_shared=is_shared, house=house) for name, limits in (keys or {}).items()}

    def of(self, key: str) -> Account:
        """The key's account, as `Rights.account` names it."""
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(key, None, house=self._house)
        return account

    def know(self, keys: Iterable[str]) -> None:
        """These may come, too: their share counts from now on."""
        for key in keys:
            self.of(key)

    def accounts(self) -> list[Account]:
        """Of all keys that were seen or have limits."""
        return list(self._accounts.values())
