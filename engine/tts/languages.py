"""Which scripts a text uses and which a voice reads. Pure.

Asked before every synthesis: a voice given a script that it cannot read makes noise instead of an error.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import lru_cache

ENOUGH = 0.75  # of the letters

_BY_NAME = {
    "CJK": "Hani",
    "HIRAGANA": "Kana",
    "KATAKANA": "Kana",
    "HANGUL": "Hang",
    "LATIN": "Latn",
    "CYRILLIC": "Cyrl",
    "GREEK": "Grek",
    "ARABIC": "Arab",
    "HEBREW": "Hebr",
    "DEVANAGARI": "Deva",
    "THAI": "Thai",
}
_READ_BY = {
    "zh": {"Hani"},
    "ja": {"Hani", "Kana"},
    "ko": {"Hang", "Hani"},
    "ru": {"Cyrl"},
    "uk": {"Cyrl"},
    "bg": {"Cyrl"},
    "el": {"Grek"},
    "ar": {"Arab"},
    "fa": {"Arab"},
    "ur": {"Arab"},
    "he": {"Hebr"},
    "hi": {"Deva"},
    "mr": {"Deva"},
    "th": {"Thai"},
}


def speakable(text: str) -> bool:
    """Whether there is anything to say: a letter or a digit."""
    return any(character.isalnum() for character in text)


def scripts(text: str) -> dict[str, int]:
    """How many letters of each script; digits and marks belong to none, rare scripts are `Zzzz`."""
    counts: dict[str, int] = {}
    for character in text:
        script = script_of(character)
        if script is not None:
            counts[script] = counts.get(script, 0) + 1
    return counts


@lru_cache(maxsize=8192)
def script_of(character: str) -> str | None:
    """ISO 15924 code of a letter, None for everything else."""
    if not character.isalpha():
        return None
    name = unicodedata.name(character, "").split(" ")
    first = name[1] if name[0] in ("FULLWIDTH", "HALFWIDTH", "MATHEMATICAL") and len(name) > 1 else name[0]
    return _BY_NAME.get(first.partition("-")[0], "Zzzz")


def scripts_read(languages: Iterable[str], reads_latin: bool = True) -> frozenset[str]:
    """Scripts that a voice of these languages reads. Neural voices of other scripts read Latin words as well."""
    read: set[str] = set()
    for language in languages:
        read |= _READ_BY.get(language.split("-")[0].lower(), {"Latn"})
    if reads_latin:
        read.add("Latn")
    return frozenset(read)


def coverage(languages: Iterable[str], text: str, reads_latin: bool = True) -> float:
    """Share of the letters of `text` that a voice of these languages reads; 1.0 for a text without letters."""
    counts = scripts(text)
    read = scripts_read(languages, reads_latin)
    known = sum(count for script, count in counts.items() if script in read)
    return known / total if (total := sum(counts.values())) else 1.0


def reads(languages: Iterable[str], text: str, reads_latin: bool = True) -> bool:
    """Whether a voice of these languages may be given `text`: a foreign name in it is lost, a foreign clause is not."""
    return coverage(languages, text, reads_latin) >= ENOUGH
