"""Tells a hung engine from a busy one.

Pure; moments are seconds of one monotonic clock. vLLM's own health check notices a dead engine only. A busy engine keeps
finishing steps, however long its queue. When no step was seen for a while, the engine may be idle or hung: a canary (a
request for one token, read at once, unlike a stream whose reader is slow) tells which.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Verdict = Literal["fine", "needs_canary", "hung"]


class WatchLimits(Struct, frozen=True, kw_only=True):
    """`canary_s`: silence before a canary. `hung_s`: longer than the longest single step (a full prefill budget takes seconds on a CPU)."""

    canary_s: float = 15.0
    hung_s: float = 20.0


def judge(limits: WatchLimits, now_s: float, last_step_s: float, canary_since_s: float | None) -> Verdict:
    """State of the engine; `canary_since_s` is when the unanswered canary was sent, None without one."""
    if canary_since_s is not None:
        return "hung" if now_s - max(last_step_s, canary_since_s) >= limits.hung_s else "fine"
    return "needs_canary" if now_s - last_step_s >= limits.canary_s else "fine"
