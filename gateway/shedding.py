"""When this process has more to do than it can do well: what it gives up first, when it takes nobody new, and when all is well again.

Pure; the time comes in as seconds of the loop's clock. Two things are watched: how late the event loop wakes, and how long turns wait for
the model's first token. Each counts as too long when most of what was seen within `window_s` was over its limit, so one stall closes
nothing. At `ease_share` of a limit drafts and warm-ups stop (eased); at the limit no new session is let in (closed). Turns under way, and
clients that come back to their session, are never touched. A level ends when its bound has been kept for `calm_s`.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Literal

from msgspec import Struct

from gateway.config import SheddingSettings
from gateway.errors import Shedding

Level = Literal["open", "eased", "closed"]
LEVELS: tuple[Level, ...] = ("open", "eased", "closed")
FEWEST = {"lag": 5, "ttft": 4}  # values in the window before they count: a loop that wakes once a second; more than one speaker's turns
MOST = 2000  # values kept of each: 100 s of wake-ups


class Readings(Struct, frozen=True):
    """What most of the window was at least, in milliseconds; None: too little was seen."""

    lag_ms: float | None = None
    ttft_ms: float | None = None


class Pressure:
    """Tell it what is seen; `update` decides. One for a process."""

    def __init__(self, settings: SheddingSettings = SheddingSettings()) -> None:  # noqa: B008  # frozen
        self._settings = settings
        self._lags: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._ttfts: deque[tuple[float, float]] = deque(maxlen=MOST)
        self._waiting: dict[str, float] = {}
        self._calm_since_s: float | None = None
        self.level: Level = "open"
        self.reason = ""
        self.readings = Readings()

    @property
    def is_eased(self) -> bool:
        """Whether what nobody waits for is left undone."""
        return self.level != "open"

    @property
    def is_closed(self) -> bool:
        """Whether no new session is let in."""
        return self.level == "closed"

    def refusal(self) -> Shedding:
        """What a newcomer is told while it is closed."""
        what = "This server answers late" if self.reason == "lag" else "The model answers late"
        retry_s = max(1.0, self._settings.calm_s)
        return Shedding(f"{what}: no new conversations until it has caught up.", retry_after_ms=round(1000 * retry_s))

    def woke(self, lag_ms: float, now: float) -> None:
        """The loop woke so late."""
        self._lags.append((now, lag_ms))

    def asked(self, request_id: str, now: float) -> None:
        """A turn waits for the model."""
        self._waiting[request_id] = now

    def answered(self, request_id: str, now: float) -> None:
        """Its first token is there. Nothing happens for one that does not wait."""
        if (since := self._waiting.pop(request_id, None)) is not None:
            self._ttfts.append((now, (now - since) * 1000))

    def gave_up(self, request_id: str) -> None:
        """It waits no more; how long it would have waited is not known."""
        self._waiting.pop(request_id, None)

    def update(self, now: float) -> bool:
        """Decide anew; whether the level has changed."""
        lag_ms = self._most(self._lags, "lag", [], now)
        self.readings = Readings(lag_ms=lag_ms, ttft_ms=self._most(self._ttfts, "ttft", self._overdue(now), now))
        wanted, reason = self._wanted(self.readings)
        if LEVELS.index(wanted) >= LEVELS.index(self.level):
            self._calm_since_s = None
            return self._go(wanted, reason)
        if self._calm_since_s is None:
            self._calm_since_s = now
        if now - self._calm_since_s < self._settings.calm_s:
            return False
        self._calm_since_s = None
        return self._go(LEVELS[LEVELS.index(self.level) - 1], reason or self.reason)

    def _go(self, level: Level, reason: str) -> bool:
        is_new, self.level = level != self.level, level
        self.reason = "" if level == "open" else reason
        return is_new

    def _wanted(self, readings: Readings) -> tuple[Level, str]:
        """The level that the readings alone would give, and which of them; lag before the model."""
        settings = self._settings
        seen = (("lag", readings.lag_ms, settings.lag_ms), ("ttft", readings.ttft_ms, settings.ttft_ms))
        shares = [(value / limit, name) for name, value, limit in seen if limit and value is not None]
        bounds: tuple[tuple[Level, float], ...] = (("closed", 1.0), ("eased", settings.ease_share))
        for level, bound in bounds:
            for share, name in shares:
                if share >= bound:
                    return level, name
        return "open", ""

    def _overdue(self, now: float) -> list[float]:
        """Waits that are over the limit already: an engine that stands still answers nothing that could be counted."""
        return [waited for since in self._waiting.values() if (waited := (now - since) * 1000) >= self._settings.ttft_ms]

    def _most(self, seen: deque[tuple[float, float]], kind: str, more: list[float], now: float) -> float | None:
        while seen and seen[0][0] < now - self._settings.window_s:
            seen.popleft()
        values = [value for _, value in seen] + more
        return statistics.median(values) if len(values) >= FEWEST[kind] else None
