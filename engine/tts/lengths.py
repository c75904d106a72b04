"""How long a text can sound at most. Pure."""

from __future__ import annotations

_LONGEST_MS, _LONGEST_MS_PER_CHARACTER = 10_000, 1_000


def longest_ms(text: str) -> int:
    """No voice speaks slower than this (a digit may be a word of a second); a stream that goes on is not this text."""
    return _LONGEST_MS + _LONGEST_MS_PER_CHARACTER * len(text)
