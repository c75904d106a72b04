"""When the next audio frame is due, and how much of a turn was heard.

Pure: the time of `loop.time()` comes in as a number of seconds. Lengths are media milliseconds of one turn.

Until the client's first `playout` report the send clock counts as playout; afterwards the last report plus the time since
it, at most `EXTRAPOLATION_MS`. Nothing is ever heard that was not sent.
"""

from __future__ import annotations

import math
from typing import Any

EXTRAPOLATION_MS = 350.0  # reports come every 250 ms; one late report may be bridged, a lost client may not
PUT_OFF_SHARE = 0.1  # of a wait for a sign of life: how much later than promised its end may be noticed
FIRST_FRAME_MS = 20  # a segment's first frame: sound starts as soon as the voice has anything
TICK_MS = 0.5  # finer than any timer: less than this is now
FRAME_MS = 100  # the following ones: 10 messages a second instead of 50
OPUS_FRAME_MS = 20  # every one; longer packets cost the listener more when one is lost


class PlayoutClock:
    """How much of a turn's audio was sent and how much of it has been heard."""

    def __init__(self) -> None:
        self.sent_ms = 0.0
        self.reported = False
        self.final = False
        self._told_ms = 0.0  # by the last report; the base may be our own estimate
        self._base_ms = 0.0
        self._base_at: float | None = None
        self._paused_at: float | None = None

    @property
    def is_paused(self) -> bool:
        """Whether the client holds its player."""
        return self._paused_at is not None

    def sent(self, length_ms: float, now: float) -> None:
        """Count audio that leaves now. Where everything sent had been heard, the clock starts again from here."""
        if self._base_at is None or self.played_ms(now) >= self.sent_ms:
            self._base_ms, self._base_at = self.sent_ms, now
        self.sent_ms += length_ms
        self.final = False

    def report(self, played_ms: Any, now: float, *, final: bool = False) -> bool:
        """Take a client's report (Any: straight from the wire); False where it is ignored.

        Not a number, negative or backward: ignored. Beyond what was sent: clamped.
        """
        if isinstance(played_ms, bool) or not isinstance(played_ms, int | float) or math.isnan(played_ms) or played_ms < 0:
            return False
        if self.reported and played_ms < self._told_ms:
            return False
        self._told_ms = min(float(played_ms), self.sent_ms)
        self._base_ms, self._base_at = self._told_ms, now
        self.reported = True
        self.final = final
        return True

    def played_ms(self, now: float) -> float:
        """Media milliseconds heard by now."""
        if self._base_at is None:
            return 0.0
        elapsed_ms = max(0.0, ((self._paused_at or now) - self._base_at) * 1000)
        if self.final:
            elapsed_ms = 0.0
        elif self.reported:
            elapsed_ms = min(elapsed_ms, EXTRAPOLATION_MS)
        return min(self.sent_ms, self._base_ms + elapsed_ms)

    def is_played_out(self, now: float) -> bool:
        """Whether all that was sent has been heard (or the client says that it has finished)."""
        return self.final or self.played_ms(now) + TICK_MS >= self.sent_ms

    def due_in_s(self, lead_ms: float, now: float) -> float:
        """Seconds until the next frame may leave, so that at most `lead_ms` is ahead of the listener; 0 when due."""
        early_ms = self.sent_ms - lead_ms - self.played_ms(now)
        return early_ms / 1000 if early_ms > TICK_MS else 0.0

    def pause(self, now: float) -> None:
        """The client holds its player: the clock stands still."""
        self._base_ms, self._base_at = self.played_ms(now), now
        self._paused_at = now

    def resume(self, now: float) -> None:
        """The client plays on. Nothing happens where it was not paused."""
        if self._paused_at is None:
            return
        self._base_at, self._paused_at = now, None


def put_off(deadline_s: float | None, now_s: float, wait_s: float) -> float | None:
    """Where a sign of life now moves the deadline to that ends a wait of `wait_s` for the next one; None: it may stay where it is.

    It falls between `wait_s` and a tenth more after the last sign, so that not every delta and chunk sets a timer: that was a twelfth of
    all CPU of a gateway under load.
    """
    latest_s = now_s + wait_s * (1 + PUT_OFF_SHARE)
    return None if deadline_s is not None and now_s + wait_s <= deadline_s <= latest_s else latest_s


def frame_ms(index_in_segment: int) -> int:
    """Length of a segment's n-th frame; only its last one may be shorter."""
    return FIRST_FRAME_MS if index_in_segment == 0 else FRAME_MS
