"""What is left to say of a text whose voice broke off, and where a long text is divided. Pure."""

from __future__ import annotations

import re

_STARTS = re.compile(r"\w")
# Where a reader may pause, best first; each division keeps its mark.
_BREAKS = (re.compile(r"[.!?。！？…]+[\"'”’)）]*\s*"), re.compile(r"[,;:，；：、—]\s*"), re.compile(r"\s+"))
_WIDE_UNITS = 3  # a Han character sounds about as long as three Latin letters
USUAL_MS_PER_UNIT = 65.0


def next_word(text: str, start: int) -> int:
    """Where the next word begins at or after `start`; the text's length when only marks are left."""
    found = _STARTS.search(text, start)
    return found.start() if found else len(text)


def units(text: str) -> int:
    """Length of a text as it sounds, in Latin letters."""
    return sum(_WIDE_UNITS if character >= "\u2e80" else 1 for character in text if character.isalnum())


def said_until(text: str, said_ms: float, ms_per_unit: float) -> int:
    """About where a voice without word times is after `said_ms`: the start of the word being said, so that none is lost."""
    left = said_ms / max(ms_per_unit, 1.0)
    word_start, was_word = 0, False
    for place, character in enumerate(text):
        is_word = character.isalnum()
        if is_word and (not was_word or character >= "\u2e80"):
            word_start = place
        was_word = is_word
        left -= units(character)
        if left < 0:
            return word_start
    return len(text)


def divide(text: str, longest: int) -> list[str]:
    """The text in parts of at most `longest` characters, joined they are the text; cut at the best mark in the second half."""
    parts = []
    while len(text) > longest:
        at = _division(text[:longest])
        parts.append(text[:at])
        text = text[at:]
    return [*parts, text]


def _division(text: str) -> int:
    for mark in _BREAKS:
        ends = [found.end() for found in mark.finditer(text, len(text) // 2)]
        if ends:
            return ends[-1]
    return len(text)
