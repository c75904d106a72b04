"""Reads `Retry-After`. Pure: time comes in as a number. Source: RFC 9110 section 10.2.3."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

_LONGEST_S = 600.0  # a service that asks for more is asked again sooner: voices must come back by themselves


def read_retry_after(value: str | None, now_s: float) -> float | None:
    """Seconds to wait, at most ten minutes; None when there is no such wish or it cannot be read. `now_s`: Unix time."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), _LONGEST_S)
    try:
        moment = parsedate_to_datetime(text)
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _LONGEST_S)
