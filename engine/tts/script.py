"""Which writing a voice can read, and which parts of a text it would turn into noise. Pure.

A voice for a Latin language spells out "Chinese letter" for each Han character, or worse. So a text is refused when much of it is foreign,
and single foreign signs are left out of a text that is readable as a whole.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

_LATIN = "LATIN"
# Scripts by language, as the first word of a letter's Unicode name. Languages that are not here write Latin.
_SCRIPTS = {
    "ar": ("ARABIC",),
    "bg": ("CYRILLIC",),
    "cmn": ("CJK",),
    "el": ("GREEK",),
    "fa": ("ARABIC",),
    "he": ("HEBREW",),
    "hi": ("DEVANAGARI",),
    "ja": ("CJK", "HIRAGANA", "KATAKANA"),
    "ka": ("GEORGIAN",),
    "kk": ("CYRILLIC",),
    "ko": ("HANGUL",),
    "ml": ("MALAYALAM",),
    "mr": ("DEVANAGARI",),
    "ne": ("DEVANAGARI",),
    "ru": ("CYRILLIC",),
    "sr": ("CYRILLIC",),
    "ta": ("TAMIL",),
    "te": ("TELUGU",),
    "th": ("THAI",),
    "uk": ("CYRILLIC",),
    "ur": ("ARABIC",),
    "vi": (_LATIN,),
    "yue": ("CJK",),
    "zh": ("CJK",),
}
_MOST_FOREIGN = 0.25  # of all letters and digits: a foreign name in a sentence is left out, a foreign sentence is refused
_SILENT_CATEGORIES = {"So", "Sk", "Cc", "Cf", "Co", "Cs", "Cn"}  # pictures, controls, private signs; a voice names or spells them


def primary(language: str) -> str:
    """The first subtag: "en" of "en_US" and of "en-us"."""
    return language.replace("_", "-").split("-")[0].lower()


def scripts_of(language: str) -> frozenset[str]:
    """What a voice for `language` reads: its own script, and Latin, which every voice here knows."""
    return frozenset((*_SCRIPTS.get(primary(language), ()), _LATIN))


def speakable(text: str) -> bool:
    """Whether there is anything to say at all: a letter or a digit."""
    return any(sign.isalnum() for sign in text)


def can_read(text: str, scripts: frozenset[str]) -> bool:
    """Whether there is something to say, and little in it that is foreign."""
    n_own = n_foreign = 0
    for sign in unicodedata.normalize("NFKC", text):
        if sign.isalpha():
            if _script(sign) in scripts:
                n_own += 1
            else:
                n_foreign += 1
        elif sign.isdigit():
            n_own += 1
    return n_own > 0 and n_foreign <= _MOST_FOREIGN * (n_own + n_foreign)


def readable(text: str, scripts: frozenset[str]) -> str:
    """The text without what a voice for `scripts` cannot read."""
    return "".join(sign if _is_readable(sign, scripts) else " " for sign in unicodedata.normalize("NFKC", text))


def _is_readable(sign: str, scripts: frozenset[str]) -> bool:
    if sign.isalpha():
        return _script(sign) in scripts
    return sign == "\n" or unicodedata.category(sign) not in _SILENT_CATEGORIES


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "UNKNOWN").split(" ")[0]
