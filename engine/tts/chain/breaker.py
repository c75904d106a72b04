"""When a failing voice rests, and when it may try again. Pure: time comes in as a number of seconds.

Three reasons to rest: a fault that makes a second try pointless, the service's own wish, and half of the last ten texts failed.
A rest doubles each time that the try after it fails. After a rest one text at a time tries; the others go elsewhere.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

_OUTCOMES = 10
_MOST_FAULTS = 5  # of the last ten: a retry hides a fault from the listener, and costs them a second each


class BreakerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rest_s`: the first rest; long enough that a reply is not spoken by two voices in turn. `longest_rest_s`: the doubled ones' limit."""

    rest_s: float = 20.0
    longest_rest_s: float = 320.0


class Breaker:
    """One engine's."""

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._rest_s = settings.rest_s
        self._until_s: float | None = None
        self._is_trying = False
        self._outcomes: deque[bool] = deque(maxlen=_OUTCOMES)

    def is_open(self, now_s: float) -> bool:
        """Whether a text may be given to the engine; does not reserve the try after a rest (`begin` does)."""
        return self._until_s is None or (now_s >= self._until_s and not self._is_trying)

    def ready_at(self) -> float:
        """When the rest is over; the past when there is none."""
        return self._until_s if self._until_s is not None else float("-inf")

    def begin(self) -> None:
        """A text is given to it."""
        self._is_trying = self._until_s is not None

    def on_success(self) -> None:
        """The text was spoken."""
        self._is_trying, self._until_s, self._rest_s = False, None, self._settings.rest_s
        self._outcomes.append(True)

    def on_left(self) -> None:
        """The listener left, or the engine had no room: nothing was learned."""
        self._is_trying = False

    def on_fault(self, now_s: float, is_hopeless: bool, retry_after_s: float | None = None) -> bool:
        """The text failed; whether the engine rests now. `is_hopeless`: a second try would fail as well."""
        was_trying, self._is_trying = self._is_trying, False
        self._outcomes.append(False)
        if not (is_hopeless or was_trying or retry_after_s is not None or self._outcomes.count(False) >= _MOST_FAULTS):
            return False
        if retry_after_s is not None:
            self._until_s = now_s + max(1.0, retry_after_s)
        elif self._until_s is None or now_s >= self._until_s:  # texts that fail together are one reason
            self._until_s = now_s + self._rest_s
            self._rest_s = min(2 * self._rest_s, self._settings.longest_rest_s)
        self._outcomes.clear()
        return True
