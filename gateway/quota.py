"""What each key has used, and what it may use: conversations at once, turns, tokens and seconds of audio over a sliding time.

Pure; the time comes in as seconds of the loop's clock. An account counts for every key, bounded or not, so that whoever shares capacity
out can see who holds it. Counts are this process's own and begin anew with it. What a turn costs is known when it ends, so the last turn
may go beyond a limit; the next one is refused. Only configured keys have accounts: their number is bounded by the settings.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from gateway.config import KeySettings
from gateway.errors import QuotaExceeded, TooManySessions

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86_400.0
N_SLOTS = 60  # a sum forgets in steps of a sixtieth of its time
LIMITS = ("sessions", "turns", "tokens_hour", "tokens_day", "audio")  # what a refusal may be for
SESSION_WAIT_MS = 5000  # nobody knows when a conversation ends


class SlidingSum:
    """What was added within the last `window_s`, to a sixtieth of it, never too little."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._slot_s = window_s / N_SLOTS
        self._slots: deque[tuple[int, float]] = deque()
        self._sum = 0.0

    def add(self, amount: float, now: float) -> None:
        """Count it."""
        slot = int(now // self._slot_s)
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

    def wait_s(self, limit: float, now: float) -> float:
        """Seconds until less than `limit` is used."""
        left = self.used(now)
        for slot, amount in self._slots:
            if left < limit:
                break
            left -= amount
            ends_s = self._ends(slot)
            if left < limit:
                return ends_s - now
        return 0.0

    def _ends(self, slot: int) -> float:
        return (slot + 1) * self._slot_s + self._window_s


class Account:
    """One key's."""

    def __init__(self, name: str, limits: KeySettings | None) -> None:
        self.name = name
        self.n_sessions = 0
        self.turns = SlidingSum(MINUTE_S)
        self.tokens_hour = SlidingSum(HOUR_S)
        self.tokens_day = SlidingSum(DAY_S)
        self.audio_s = SlidingSum(HOUR_S)
        self._limits = limits

    @property
    def weight(self) -> float:
        """Of its share beside other keys."""
        return 1.0 if self._limits is None else self._limits.weight

    def session_refusal(self) -> QuotaExceeded | None:
        """Why no further conversation may begin now, if so."""
        limit = 0 if self._limits is None else self._limits.sessions
        if limit and self.n_sessions >= limit:
            fault = f"This key has {limit} conversations open, and may have no more at once."
            return TooManySessions(fault, limit="sessions", retry_after_ms=SESSION_WAIT_MS)
        return None

    def turn_refusal(self, now: float) -> QuotaExceeded | None:
        """Why no further turn may begin now, if so."""
        own = self._limits
        if own is None:
            return None
        for limit, used, kind, what in (
            (own.turns_per_min, self.turns, "turns", "turns a minute"),
            (own.tokens_per_h, self.tokens_hour, "tokens_hour", "tokens an hour"),
            (own.tokens_per_day, self.tokens_day, "tokens_day", "tokens a day"),
            (own.audio_s_per_h, self.audio_s, "audio", "seconds of audio an hour"),
        ):
            if limit and used.used(now) >= limit:
                wait_s = used.wait_s(limit, now)
                fault = f"This key may use {limit} {what}; there is room again in {math.ceil(wait_s)} s."
                return QuotaExceeded(fault, limit=kind, retry_after_ms=math.ceil(wait_s * 1000))
        return None

    def begin_turn(self, now: float) -> None:
        """A turn was asked for."""
        self.turns.add(1, now)

    def spend(self, tokens: int, audio_s: float, now: float) -> None:
        """What a turn came to."""
        self.tokens_hour.add(tokens, now)
        self.tokens_day.add(tokens, now)
        self.audio_s.add(audio_s, now)


class Quota:
    """The accounts of all keys. A key is known by its name in [keys.NAME], else by its holder id; "" is everyone where no keys are."""

    def __init__(self, keys: Mapping[str, KeySettings] | None = None) -> None:
        self._accounts = {name: Account(name, limits) for name, limits in (keys or {}).items()}

    def of(self, key: str) -> Account:
        """The key's account, as `Rights.account` names it."""
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(key, None)
        return account

    def know(self, keys: Iterable[str]) -> None:
        """These may come, too: their share counts from now on."""
        for key in keys:
            self.of(key)

    def accounts(self) -> list[Account]:
        """Of all keys that were seen or have limits."""
        return list(self._accounts.values())
