"""The book of the keys: what all processes that share it have used, and who holds how many conversations.

Pure. The process above several workers keeps one; Redis keeps the same for gateways on several machines (`redis_book`). It refuses no turn:
each process judges those by its own copy. It alone decides who has the last conversation of a key, since it hears one question at a time.
"""

from __future__ import annotations

from msgspec import Struct

from gateway.quota import WINDOWS_S, Report, SlidingSum, Told

MOST_LEFT = 64  # processes that are gone, whose numbers are kept in case that only their line broke


class _Held(Struct):
    n_sessions: int
    number: int


class _Leaf:
    """One key's."""

    def __init__(self) -> None:
        self.sums = tuple(SlidingSum(window_s) for window_s in WINDOWS_S)
        self.held: dict[str, _Held] = {}


class Ledger:
    """Of keys that the settings name, and of processes that live, or did so lately: both are few."""

    def __init__(self) -> None:
        self._leaves: dict[str, _Leaf] = {}
        self._left: dict[str, None] = {}  # who has left and not come back, the first one first

    def settle(self, holder: str, report: Report, now: float) -> Told:
        """Enter what `holder` says of a key, and answer what is known of it."""
        self._left.pop(holder, None)
        leaf = self._leaves.setdefault(report.account, _Leaf())
        held = leaf.held.setdefault(holder, _Held(0, 0))
        if report.number > held.number:
            held.number = report.number
            for each, amount in zip(leaf.sums, report.spent, strict=True):
                if amount:
                    each.add(amount, now)
        n_elsewhere = sum(other.n_sessions for name, other in leaf.held.items() if name != holder)
        is_granted = not report.most_sessions or report.n_sessions + n_elsewhere <= report.most_sessions
        held.n_sessions = report.n_sessions - int(not is_granted)
        told = [each.since(first, now) for each, first in zip(leaf.sums, report.first, strict=True)]
        return Told(
            now_s=now,
            is_granted=is_granted,
            n_elsewhere=n_elsewhere,
            first=tuple(first for first, _ in told),
            amounts=tuple(amounts for _, amounts in told),
        )

    def leave(self, holder: str) -> None:
        """This process is gone, and its conversations with it; what they used stays used. It may come back with the number that it had."""
        self._left[holder] = None
        forgotten = next(iter(self._left)) if len(self._left) > MOST_LEFT else ""
        self._left.pop(forgotten, None)
        for leaf in self._leaves.values():
            leaf.held.pop(forgotten, None)
            if holder in leaf.held:
                leaf.held[holder].n_sessions = 0
