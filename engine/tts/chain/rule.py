"""Who speaks a text, and who finishes it when a voice fails. Pure: time comes in as a number.

Decides for one text at a time; breakers remember across texts. A voice that failed fast is asked once more, because a listener
minds another voice more than half a second; one that stalled, refused or is not there is not. When all rest, the one that
rests least longer is asked anyway: silence is worse than a try. Assumes that the candidates can all read the text.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from engine.tts.chain.breaker import Breaker, BreakerSettings

# Kinds after which the same engine would fail again, or has cost the listener its deadline already.
_HOPELESS = frozenset({"stalled", "refused", "not_ready"})
# Kinds that say nothing about the engine's health.
_HARMLESS = frozenset({"busy", "no_voice", "context_too_long"})
_TRIES = 2  # of one engine for one text


class Candidate(Struct, frozen=True):
    """A voice of an engine."""

    engine: str
    voice: str


class Failure(Struct, frozen=True):
    """What an engine's error means here. `kind` as in `engine.api`; a cut counts as the fault behind it."""

    kind: str
    retry_after_s: float | None = None


class Breakers:
    """One breaker for each engine."""

    def __init__(self, engines: Sequence[str], settings: BreakerSettings) -> None:
        self._breakers = {engine: Breaker(settings) for engine in engines}

    def of(self, engine: str) -> Breaker:
        return self._breakers[engine]


class Plan:
    """One text. `next` and one of `succeeded`, `failed`, `left` alternate."""

    def __init__(self, candidates: Sequence[Candidate], breakers: Breakers) -> None:
        self._candidates = list(candidates)
        self._breakers = breakers
        self._tries = dict.fromkeys(self._candidates, 0)
        self._out: set[Candidate] = set()

    def next(self, now_s: float) -> Candidate | None:
        """Who is asked now; None when nobody is left."""
        left = [each for each in self._candidates if each not in self._out]
        rested = [each for each in left if self._breakers.of(each.engine).is_open(now_s)]
        if rested:
            chosen = rested[0]
        elif left:
            chosen = min(left, key=lambda each: self._breakers.of(each.engine).ready_at())
        else:
            return None
        self._tries[chosen] += 1
        self._breakers.of(chosen.engine).begin()
        return chosen

    def succeeded(self, candidate: Candidate) -> None:
        """It spoke all that was left."""
        self._breakers.of(candidate.engine).on_success()

    def left(self, candidate: Candidate) -> None:
        """The listener does not want the rest."""
        self._breakers.of(candidate.engine).on_left()

    def failed(self, candidate: Candidate, failure: Failure, now_s: float) -> bool:
        """It failed; whether its engine rests now."""
        breaker = self._breakers.of(candidate.engine)
        if failure.kind in _HARMLESS and failure.retry_after_s is None:
            breaker.on_left()
            self._out.add(candidate)
            return False
        is_last_try = self._tries[candidate] >= _TRIES
        rests = breaker.on_fault(now_s, failure.kind in _HOPELESS or is_last_try, failure.retry_after_s)
        if rests or is_last_try:
            self._out.add(candidate)
        return rests
