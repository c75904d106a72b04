"""The tables of one language: which words with a full stop end a sentence, and what a next word tells.

Read once per language from `data/<language>.txt`; the session's language and English are joined, because assistants mix in
English names and abbreviations whatever they speak. Source: own tables, written for this file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from gateway.speech.segmenter.kinds import Kind

SECTIONS = frozenset(
    "never number unit final maybe suffix starters adverbial months labels lettered speech leads ordinals".split()  # noqa: SIM905  # a table
)
_ABBREVIATIONS = (
    ("maybe", Kind.MAYBE),
    ("final", Kind.FINAL),
    ("number", Kind.NUMBER_WORD),
    ("unit", Kind.UNIT),
    ("never", Kind.NEVER),
)
"""Later ones win."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Words without their last full stop; spaced forms (`z. B.`) are joined (`z.b`). Written in lower case they match any case,
    with a capital only a capital."""

    language: str
    kinds: Mapping[str, Kind]
    """Abbreviations."""
    suffixes: tuple[str, ...]
    """Ends of compounds that are followed by a number (`Goethestr. 5`)."""
    titles: frozenset[str]
    """The abbreviations a sentence never ends with."""
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
        if not words:
            continue
        if words[0].startswith("["):
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


def _kinds(tables: Mapping[str, frozenset[str]], own: Mapping[str, frozenset[str]]) -> Mapping[str, Kind]:
    """One table of all abbreviations: the language's own word on a word counts before the English one."""
    kinds: dict[str, Kind] = {}
    for words in (tables, own):
        kinds |= {word: kind for name, kind in _ABBREVIATIONS for word in words.get(name, ())}
    return kinds


@lru_cache(maxsize=64)
def rules_for(language: str) -> Rules:
    """Rules of a language tag (`en`, `zh-TW`); an unknown language gets those English words that are words nowhere else."""
    primary = language.replace("_", "-").partition("-")[0].lower() or "en"
    own = _tables(primary) if primary != "en" else {}
    english = {name: words - own.get("starters", frozenset()) for name, words in _tables("en").items()}

    def joined(name: str) -> frozenset[str]:
        return english.get(name, frozenset()) | own.get(name, frozenset())

    tables = {name: joined(name) for name in SECTIONS}
    tables["maybe"] = own.get("maybe", frozenset()) | _shared(english, primary)
    return Rules(
        language=primary,
        kinds=_kinds(tables, own),
        suffixes=tuple(sorted(own.get("suffix", ()))),
        titles=tables["never"],
        starters=joined("starters") if primary == "en" or not own.get("starters") else own["starters"],
        months=joined("months"),
        labels=joined("labels"),
        adverbial=joined("adverbial"),
        lettered=joined("lettered"),
        speech=joined("speech"),
        leads=own.get("leads", frozenset()),
        has_ordinals=bool(own.get("ordinals")),
        lower_starts=primary in ("en", "zh", "ja", "ko"),
    )
