"""Which items a prompt has room for.

Pure. When a conversation outgrows its budget the oldest part of it is left out in one big step, not item by item: what stays begins at the
same place for many turns, so that the engine's prefix cache goes on hitting. What stays begins at something the user said, where templates
expect a conversation to begin, and never between a call and its result.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.history.items import Item
from gateway.history.prompt import cost


class Budget(Struct, frozen=True, kw_only=True):
    """Tokens of a prompt at most; as shares of them, where the oldest part is left out between two turns, and what then remains."""

    tokens: int
    trim_at: float = 0.9
    trim_to: float = 0.6


def is_question(item: Item) -> bool:
    """Whether the user said it."""
    return item.kind == "message" and item.role == "user"


def n_to_leave_out(items: Sequence[Item], room_tokens: float) -> int:
    """How many of the oldest must go, so that the others take `room_tokens` at most. The last thing that the user said stays, and all
    behind it, however little room there is."""
    questions = [place for place, item in enumerate(items) if is_question(item)]
    starts = questions or [place for place, item in enumerate(items) if item.kind == "message"] or [0]
    costs = [cost(item) for item in items]
    left = sum(costs)
    gone = 0
    late = _latest_results(items)
    for start in starts:
        left -= sum(costs[gone:start])
        gone = start
        if left <= room_tokens and late[start] < start:
            return start
    return starts[-1]


def _latest_results(items: Sequence[Item]) -> list[int]:
    """For each place, where the last result stands whose call stands before it; -1 where there is none."""
    results = {item.call_id: place for place, item in enumerate(items) if item.kind == "result"}
    found, latest = [], -1
    for item in items:
        found.append(latest)
        if item.kind == "call":
            latest = max(latest, results.get(item.call_id, -1))
    return found or [-1]
