"""The tables of one language: which words with a full stop end a sentence, and what a next word tells.

Read once per language from `data/<language>.txt`; the session's language and English are joined, because assistants mix in
English names and abbreviations whatever they speak. Source: own tables, written for this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

SECTIONS = frozenset(
    {"never", "number", "final", "maybe", "starters", "months", "labels", "speech", "ordinals", "leads", "lettered", "unit", "adverbial"}
)


@dataclass(frozen=True, slots=True)
class Rules:
    """Words without their last full stop; spaced forms (`z. B.`) are joined (`z.b`). Written in lower case they match any case,
    with a capital only a capital."""

    language: str
    never: frozenset[str]
    """Titles and `e.g.`: a sentence never ends here."""
    number: frozenset[str]
    """`No.`, `Fig.`: never before a number, otherwise like any word."""
    unit: frozenset[str]
    """`1990 г.` ends a sentence like `final`, `г. Волгоград` never."""
    final: frozenset[str]
    """`etc.`, `p.m.`, `Inc.`: ends a sentence before a capital."""
    maybe: frozenset[str]
    """`U.S.`, `Jr.`: ends a sentence only before a frequent first word."""
    starters: frozenset[str]
    """Words that mostly begin a sentence when written with a capital."""
    adverbial: frozenset[str]
    """`At 5 p.m. Bob called`: words that begin a short phrase before the main clause."""
    months: frozenset[str]
    labels: frozenset[str]
    """`Step 1.`: the number belongs to the word before it, and both to what follows."""
    lettered: frozenset[str]
    """`vitamin C.`: the letter is no initial."""
    speech: frozenset[str]
    """Verbs after a quotation: `"Stop!" John said`."""
    leads: frozenset[str]
    """`am 3. Oktober`: words before an ordinal number."""
    has_ordinals: bool
    """`3. Oktober`: a small number with a full stop waits for the next word."""
    lower_starts: bool
    """A lower-case word may begin a sentence (English: brand names, commands)."""


def parse(text: str) -> Mapping[str, frozenset[str]]:
    """Sections of a table file: `[name]` lines, then words; `#` starts a comment. Raises ValueError on an unknown section."""
    found: dict[str, set[str]] = {}
    name = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words and words[0].startswith("["):
            name = words[0].strip("[]")
            if name not in SECTIONS:
                raise ValueError(f"line {number}: unknown section {name!r}, expected one of {sorted(SECTIONS)}")
            words = words[1:]
        found.setdefault(name, set()).update(words)
    return {key: frozenset(value) for key, value in found.items()}


def _tables(language: str) -> Mapping[str, frozenset[str]]:
    source = files(__package__).joinpath("data").joinpath(f"{language}.txt")
    return parse(source.read_text(encoding="utf-8")) if source.is_file() else {}


def _shared(english: Mapping[str, frozenset[str]], primary: str) -> frozenset[str]:
    """English words of the maybe kind that are not words elsewhere: all in English, only the dotted ones in other languages."""
    words = english.get("maybe", frozenset())
    return words if primary in ("en", "zh", "ja", "ko") else frozenset(word for word in words if "." in word or word in ("jr", "sr"))


@lru_cache(maxsize=64)
def rules_for(language: str) -> Rules:
    """Rules of a language tag (`en`, `zh-TW`); an unknown language gets the English tables."""
    primary = language.replace("_", "-").partition("-")[0].lower() or "en"
    own = _tables(primary) if primary != "en" else {}
    english = {name: words - own.get("starters", frozenset()) for name, words in _tables("en").items()}

    def joined(name: str) -> frozenset[str]:
        return english.get(name, frozenset()) | own.get(name, frozenset())

    clash = own.get("never", frozenset()) | own.get("number", frozenset()) | own.get("final", frozenset())
    return Rules(
        language=primary,
        never=joined("never") - (own.get("final", frozenset()) | own.get("maybe", frozenset())),
        number=joined("number"),
        final=joined("final") - own.get("never", frozenset()),
        maybe=(own.get("maybe", frozenset()) | _shared(english, primary)) - clash,
        starters=joined("starters") if primary == "en" or not own.get("starters") else own["starters"],
        months=joined("months"),
        labels=joined("labels"),
        unit=own.get("unit", frozenset()),
        adverbial=joined("adverbial"),
        lettered=joined("lettered"),
        speech=joined("speech"),
        leads=own.get("leads", frozenset()),
        has_ordinals=bool(own.get("ordinals")),
        lower_starts=primary in ("en", "zh", "ja", "ko"),
    )
