"""How much of a segment was heard, as written text.

Decides where in the written text the sound stopped: from word timings where the voice has them, else in proportion to
what can be said. Rounds down to whole words (Han: to characters), because a history that claims too much is worse than one that claims
too little.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.speech.normalizer import Spoken

# White space, and opening or paired marks that lead on to a word that was not heard.
_OPEN_END = re.compile(r"(?:\s+[^\w\s]*|[\s(\[{“‘「『（《【〈¿¡])*\Z")

# Hiragana and katakana, Han, Hangul, compatibility Han, Han beyond the first plane.
_SYLLABLES = (("\u3040", "\u30ff"), ("\u3400", "\u9fff"), ("\uac00", "\ud7a3"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"))

WordTiming = tuple[float, float, int, int]  # start_ms, end_ms, spoken_start, spoken_end


@dataclass(frozen=True, slots=True)
class Heard:
    """The written text that was heard, and where it ends in the segment's text."""

    text: str
    end: int


def heard(text: str, spoken: Spoken, heard_ms: float, audio_ms: float, words: Sequence[WordTiming] | None = None) -> Heard:
    """The text of a segment up to where `heard_ms` of its `audio_ms` were played.

    **words**: timings in order, with offsets in `spoken.text`. A segment played to its end is heard whole, one without sound not at all.
    """
    if heard_ms <= 0 or audio_ms <= 0:
        return Heard("", 0)
    if heard_ms >= audio_ms:
        return Heard(text, len(text))
    said = _by_words(spoken.text, heard_ms, words) if words else _by_share(spoken.text, heard_ms / audio_ms)
    end = _whole_words(text, spoken.written_offset(said))
    return Heard(text[:end], end)


def _by_share(said: str, share: float) -> int:
    """The spoken offset at a share of the sound."""
    weights = [_weight(ch) for ch in said]
    left = share * sum(weights)
    for offset, weight in enumerate(weights):
        if left < weight:
            return offset
        left -= weight
    return len(said)


def _weight(ch: str) -> int:
    """How long a character sounds: a syllable of a CJK script or a digit takes about as long as three letters."""
    if unicodedata.category(ch)[0] not in "LN":
        return 0
    return 3 if is_syllable(ch) or ch.isdigit() else 1


def is_syllable(ch: str) -> bool:
    """A Han character, kana or Hangul syllable: each is a place where text may end."""
    return any(first <= ch <= last for first, last in _SYLLABLES)


def _by_words(said: str, heard_ms: float, words: Sequence[WordTiming]) -> int:
    done = 0
    for start_ms, end_ms, start, end in words:
        if end_ms <= heard_ms:
            done = max(done, end)
            continue
        if start_ms < heard_ms and all(map(is_syllable, said[start:end])):
            done = max(done, start + int((heard_ms - start_ms) / (end_ms - start_ms) * (end - start)))
        break
    return min(done, len(said))


def _whole_words(text: str, end: int) -> int:
    """Back to the start of a word that was only begun, or on over the marks that close a whole one; no opening mark at the end."""
    if _is_inside_word(text, end):
        while end and _is_word_part(text[end - 1]):
            end -= 1
    elif end and not text[end - 1].isspace():
        closed = end
        while closed < len(text) and _closes(text[closed]):
            closed += 1
        end = end if _is_inside_word(text, closed) else closed
    return len(_OPEN_END.sub("", text[:end]))


def _is_inside_word(text: str, end: int) -> bool:
    """Whether the unbroken run around `end` began before it and still has something to say behind it."""
    if not 0 < end < len(text) or not _is_word_part(text[end - 1]):
        return False
    while end < len(text) and _is_word_part(text[end]):
        if unicodedata.category(text[end])[0] in "LN":
            return True
        end += 1
    return False


def _is_word_part(ch: str) -> bool:
    # Punctuation of the wide scripts and dashes part words without a space; an apostrophe or a hyphen does not.
    if ch.isspace() or is_syllable(ch):
        return False
    return ch in "’‑" or not (ord(ch) >= 0x2000 and unicodedata.category(ch)[0] == "P")


def _closes(ch: str) -> bool:
    return unicodedata.category(ch) in ("Po", "Pe", "Pf") and ch not in "#%&@¿¡"
