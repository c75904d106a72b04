"""What guests count and time, in a form that client processes can add up: counters, and sketches of series.

A sketch keeps how many values fell into each of 2 % wide steps, so its percentiles are right within 1 % however long a load runs, and
two of them add up to what one would have seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec import Struct

from gateway.bench.measuring import Summary

SMALLEST_MS = 0.01
_STEP = math.log(1.02)


class Sketch(Struct):
    """A series of milliseconds."""

    steps: dict[int, int] = {}
    n: int = 0
    max_ms: float = 0.0

    def add(self, value_ms: float) -> None:
        """Count a value; nothing is shorter than `SMALLEST_MS`."""
        step = 0 if value_ms <= SMALLEST_MS else int(math.log(value_ms / SMALLEST_MS) / _STEP) + 1
        self.steps[step] = self.steps.get(step, 0) + 1
        self.n += 1
        self.max_ms = max(self.max_ms, value_ms)

    def merge(self, other: Sketch) -> None:
        """Add another one's values."""
        for step, n in other.steps.items():
            self.steps[step] = self.steps.get(step, 0) + n
        self.n += other.n
        self.max_ms = max(self.max_ms, other.max_ms)

    def summary(self) -> Summary | None:
        """Percentiles, nearest rank; None for an empty series."""
        if not self.n:
            return None
        p50, p95, p99 = (self._at(math.ceil(share * self.n)) for share in (0.5, 0.95, 0.99))
        return Summary(n=self.n, p50=p50, p95=p95, p99=p99, max=self.max_ms)

    def _at(self, rank: int) -> float:
        seen = 0
        for step in sorted(self.steps):
            seen += self.steps[step]
            if seen >= rank:
                return min(self.max_ms, SMALLEST_MS * math.exp((step - 0.5) * _STEP)) if step else SMALLEST_MS
        raise AssertionError("a rank within the series has a step")


class Tally(Struct):
    """Of one window, or of a whole load. Errors by code, each counted where a guest met it."""

    counts: dict[str, int] = {}
    errors: dict[str, int] = {}
    times: dict[str, Sketch] = {}

    def count(self, name: str, by: int = 1) -> None:
        """One more of `name` (see `COUNTS`)."""
        self.counts[name] = self.counts.get(name, 0) + by

    def error(self, code: str) -> None:
        """A fault that the guest did not provoke."""
        self.errors[code] = self.errors.get(code, 0) + 1

    def time(self, name: str, value_ms: float) -> None:
        """One more value of the series `name` (see `TIMES`)."""
        sketch = self.times.get(name)
        if sketch is None:
            sketch = self.times[name] = Sketch(steps={})
        sketch.add(value_ms)

    def merge(self, other: Tally) -> None:
        """Add another one's."""
        for name, n in other.counts.items():
            self.count(name, n)
        for code, n in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + n
        for name, sketch in other.times.items():
            self.times.setdefault(name, Sketch(steps={})).merge(sketch)


def empty() -> Tally:
    """A tally of its own."""
    return Tally(counts={}, errors={}, times={})


def merged(tallies: Iterable[Tally]) -> Tally:
    """All of them together."""
    whole = empty()
    for tally in tallies:
        whole.merge(tally)
    return whole


# What is counted. asked: by text or voice; started: the gateway said so; unanswered: asked, never started; lost: started, never ended.
COUNTS = {
    "visits": "visits begun",
    "seated": "sessions opened",
    "asked": "turns asked for",
    "started": "turns started",
    "completed": "turns completed",
    "interrupted": "turns interrupted (by their own guest)",
    "superseded": "turns superseded (the speaker went on)",
    "failed": "turns failed",
    "unanswered": "questions that no turn answered",
    "turned_away": "questions that crossed the gateway's goodbye",
    "lost": "turns lost: started, never ended",
    "frames": "frames received",
    "audio_frames": "audio frames received",
    "late_frames": "late audio frames: the player had run dry over 5 ms",
    "stale_frames": "frames of a turn after its interruption",
    "sequence_faults": "frames missing or sent twice",
    "barge_ins": "barge-ins",
    "drops": "sockets cut in mid-reply",
    "resumed": "of those, sessions resumed",
    "slow_pauses": "pauses of slow readers",
    "slow_closed": "slow readers that were closed (4003)",
    "refused": "visits refused at the door",
    "unreachable": "visits that reached no gateway",
    "bytes": "bytes received",
}

# What is timed, in milliseconds at the client. The two shares of the gateway need its debug stamps and one machine.
TIMES = {
    "connect": "TCP, handshake and session.ready",
    "ttft": "TTFT (the gateway's clock)",
    "first_segment": "first segment",
    "first_audio": "first audio frame, typed",
    "first_audio_spoken": "first audio frame, from the end of speech",
    "own_segment": "own share: delta -> segment frame",
    "own_first_audio": "own share: chunk -> first audio frame",
    "starved": "player ran dry before a frame",
    "barge_in": "barge-in -> interrupted",
    "resume": "reconnect -> session resumed",
    "client_lag": "this client's own loop woke late by",
}
