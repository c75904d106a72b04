"""Admit or refuse: how many conversations, how many messages, how many mistakes.

Pure counters; the time of `loop.time()` comes in as seconds.
"""

from __future__ import annotations

import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from typing import Protocol

from gateway.errors import Draining, Overloaded, Shedding, StrettoError

BAD_MESSAGES = 10  # in BAD_WINDOW_S: a peer that does not speak the protocol
BAD_WINDOW_S = 60.0
SPARE_SOCKETS = 16  # of one address beside its bound, for clients whose old socket is not found dead yet
BACK_AT_ONCE = 4  # sockets that are let in for one session beyond the bounds: else one client's would keep out all others that come back
KNOCKERS = 4096  # addresses whose handshakes are counted; 1 MB


class Places(Protocol):
    """What the other processes of this house hold, where there are any."""

    def tell(self, connected: int, away: int) -> None:
        """What this process holds now."""

    def others(self) -> tuple[int, int]:
        """Connected, and away, in all other processes."""


class OwnHouse:
    """There are none."""

    def tell(self, connected: int, away: int) -> None:
        """Nobody listens."""

    def others(self) -> tuple[int, int]:
        """Nothing."""
        return 0, 0


class Admission:
    """Counts the conversations that are open or about to be. A session whose client is away keeps its place."""

    def __init__(self, max_sessions: int, places: Places | None = None) -> None:
        self._max_sessions = max_sessions
        self._places = OwnHouse() if places is None else places
        self._connected = self._detached = 0
        self.carried = 0  # connections of which another process has the session, and its place
        self.is_ready = False
        self.is_draining = False
        self.is_shared = False  # sessions of other processes may come back here
        self.shedding: Shedding | None = None  # why no new session is let in though there are places

    @property
    def may_return(self) -> bool:
        """Whether somebody may come for a session that is open: a connection has to be heard before it can be refused as a new one."""
        return self.is_shared or self.detached > 0

    @property
    def connected(self) -> int:
        """Connections that hold a place here."""
        return self._connected

    @connected.setter
    def connected(self, number: int) -> None:
        self._connected = number
        self._places.tell(self._connected, self._detached)

    @property
    def detached(self) -> int:
        """Sessions whose client is away."""
        return self._detached

    @detached.setter
    def detached(self, number: int) -> None:
        self._detached = number
        self._places.tell(self._connected, self._detached)

    @contextlib.contextmanager
    def carrying(self) -> Iterator[None]:
        """A connection leaves its place here, because it has one where it is carried to."""
        self.connected -= 1
        self.carried += 1
        try:
            yield
        finally:
            self.carried -= 1
            self.connected += 1

    def refusal(self, *, is_back: bool = False) -> StrettoError | None:
        """Why a new connection is refused now, if it is.

        A detached session's client must be able to come back, so its place may be taken by a connection that has not said yet
        what it wants; `is_full` decides then. `is_back`: it comes for an open session, whose place it will have, and may stand beside
        the old connection until that is found dead: as many as there are places, and a few, since a phone may come back several times.
        """
        if self.is_draining:
            return Draining("The server is about to stop.", retry_after_ms=5000)
        if not self.is_ready:
            return Overloaded("The engines are not ready.", retry_after_ms=2000)
        beside = max(self._max_sessions, SPARE_SOCKETS) if is_back else 0
        if self.connected + self._places.others()[0] >= self._max_sessions + beside:
            return Overloaded(f"All {self._max_sessions} places are taken.", retry_after_ms=5000)
        return None

    @property
    def n_taken(self) -> int:
        """Places of this house that are taken, by all processes."""
        return self.connected + self.detached + sum(self._places.others())

    def is_full(self) -> bool:
        """Whether a connection that is already counted finds no place for a new session."""
        return self.n_taken > self._max_sessions


class Rate:
    """A token bucket: `per_s` messages a second, `per_s` (and at least one) at once."""

    def __init__(self, per_s: float, now: float) -> None:
        self._per_s = per_s
        self._left = self._most = max(1.0, per_s)
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one more message is within the rate."""
        self._left = min(self._most, self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until `take` would say yes."""
        left = min(self._most, self._left + (now - self._at) * self._per_s)
        return max(0.0, (1 - left) / self._per_s)


class Knocks:
    """Handshakes a second of each address, right or wrong ones, before any key is looked at. Remembers `KNOCKERS` addresses."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._rates: OrderedDict[str, Rate] = OrderedDict()

    def take(self, address: str, now: float) -> bool:
        """Whether this address may knock once more."""
        rate = self._rates.pop(address, None) or Rate(self._per_s, now)
        self._rates[address] = rate
        if len(self._rates) > KNOCKERS:
            self._rates.popitem(last=False)
        return rate.take(now)


class Guesses:
    """Wrong keys of each address: after `per_min` at once nothing more is looked at until one more is allowed."""

    def __init__(self, per_min: float) -> None:
        self._per_min = per_min
        self._rates: OrderedDict[str, Rate] = OrderedDict()

    def wait_s(self, address: str, now: float) -> float:
        """Seconds until this address may show a key again; 0: now."""
        rate = self._rates.get(address)
        return 0.0 if rate is None else rate.wait_s(now / 60) * 60

    def failed(self, address: str, now: float) -> None:
        """It showed a wrong one."""
        rate = self._rates.pop(address, None) or Rate(self._per_min, now / 60)
        self._rates[address] = rate
        if len(self._rates) > KNOCKERS:
            self._rates.popitem(last=False)
        rate.take(now / 60)


class Elsewhere(Protocol):
    """What each address, or each key, holds in the other processes of this house."""

    def tell(self, name: str, change: int) -> None:
        """It holds so many more here, or less."""

    def others(self, name: str) -> int:
        """So many in all others."""


class Crowd:
    """Sockets that each address holds open, or each session; `elsewhere` None: there are no other processes."""

    def __init__(self, at_most: int, elsewhere: Elsewhere | None = None) -> None:
        self._at_most = at_most
        self._elsewhere = elsewhere
        self._open: Counter[str] = Counter()

    def has_room(self, address: str, spare: int = 0) -> bool:
        """Whether it may hold one more."""
        n_others = 0 if self._elsewhere is None else self._elsewhere.others(address)
        return self._open[address] + n_others < self._at_most + spare

    def enter(self, address: str, spare: int = 0) -> bool:
        """Whether it may hold one more; it then does. `spare`: so many beside those that any client may hold."""
        if not self.has_room(address, spare):
            return False
        self._open[address] += 1
        if self._elsewhere is not None:
            self._elsewhere.tell(address, 1)
        return True

    def leave(self, address: str) -> None:
        """One is closed."""
        self._open[address] -= 1
        if self._elsewhere is not None:
            self._elsewhere.tell(address, -1)
        if self._open[address] <= 0:
            del self._open[address]

    def __len__(self) -> int:
        return self._open.total()


class Mistakes:
    """Bad messages within the window."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=BAD_MESSAGES)

    def add(self, now: float) -> bool:
        """Count one; True when they are too many."""
        self._times.append(now)
        return len(self._times) == BAD_MESSAGES and now - self._times[0] <= BAD_WINDOW_S
