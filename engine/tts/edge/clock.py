"""The service's clock, as far as we know it. Pure: time comes in as a number.

The service refuses (403) a token that is made with a clock more than minutes away from its own, and says its time in `Date`.
A skew learned from a refusal is kept only once a token made with it was accepted: a wrong `Date` (a captive portal's, an
attacker's) then spoils one call and not all later ones.
"""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

from edge_tts.drm import generate_sec_ms_gec_v2

_MIN_CHANGE_S = 30.0  # tokens are rounded to five minutes: a clock this near was not the reason for the refusal


class ServiceClock:
    """Skew of the service's clock against ours."""

    def __init__(self) -> None:
        self.skew_s = 0.0

    def skew_after_refusal(self, date: str | None, now_s: float) -> float | None:
        """The skew to try once, or None when the clock was not the reason. `now_s`: Unix time of this machine."""
        if date is None:
            return None
        try:
            served = parsedate_to_datetime(date)
            served_s = (served if served.tzinfo else served.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
        skew_s = served_s - now_s
        return skew_s if abs(skew_s - self.skew_s) >= _MIN_CHANGE_S else None

    def trust(self, skew_s: float) -> None:
        """A token made with this skew was accepted."""
        self.skew_s = skew_s


def token(now_s: float, skew_s: float) -> str:
    """The token for a connection opened at `now_s`."""
    return generate_sec_ms_gec_v2(now_s + skew_s)
