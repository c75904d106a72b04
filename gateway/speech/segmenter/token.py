"""What stands before a full stop: the word or number it is attached to."""

import re
from enum import Enum, auto

from gateway.speech.segmenter.characters import BULLETS, MARKS, is_han
from gateway.speech.segmenter.rules import Rules

LOOK_BACK = 64
"""No word or abbreviation is longer; keeps each decision O(1)."""
_BEFORE = frozenset('"“”‘«»„()[]{}（）【】「」『』《》<>,;，；、。！？：…|=') | MARKS
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,4}\Z")
_ROMAN = re.compile(r"[IVXLCivxlc]{1,5}\Z")
_NUMBER = re.compile(r"[$€£¥]?[\d.,:]*\d\Z")


class Kind(Enum):
    PLAIN = auto()
    NEVER = auto()
    NUMBER_WORD = auto()
    FINAL = auto()
    MAYBE = auto()
    INITIAL = auto()
    ORDINAL = auto()
    MARKER = auto()
    LABEL = auto()
    UNKNOWN = auto()
    EMPTY = auto()


def token_before(text: str, dot: int) -> str:
    """The unspaced run of characters that ends before `dot`, up to a quote, bracket or Han character."""
    at, floor = dot, max(0, dot - LOOK_BACK)
    while at > floor:
        char = text[at - 1]
        if char.isspace() or char in _BEFORE or is_han(char):
            break
        at -= 1
    return text[at:dot]


def _joined_before(text: str, start: int, token: str) -> str:
    """`z. B` -> `z.b`: short dotted words before the token, spaces dropped."""
    joined = token.lower()
    for _ in range(3):
        at = start
        while at > 0 and text[at - 1] in " \u00a0\u202f":
            at -= 1
        if at == 0 or at == start or text[at - 1] != ".":
            break
        before = token_before(text, at - 1)
        if not 0 < len(before) <= 3 or not before[-1].isalpha():
            break
        joined = f"{before.lower()}.{joined}"
        start = at - 1 - len(before)
    return joined


def leads_line(text: str, start: int) -> bool:
    """Whether only bullets, marks and spaces stand before `start` in the sentence."""
    return all(char.isspace() or char in BULLETS or char in MARKS for char in text[max(0, start - 12) : start])


def kind_of(text: str, dot: int, sentence: int, rules: Rules) -> tuple[Kind, str]:
    """Kind of the word before the full stop at `dot`; `sentence` is where the sentence began in `text`."""
    token = token_before(text, dot)
    if not token:
        return Kind.EMPTY, token
    start = dot - len(token)
    leads = start - sentence <= 12 and leads_line(text[sentence:], start - sentence)
    if token.isdecimal():
        if leads and len(token) <= 3:
            return Kind.MARKER, token
        before = text[max(0, start - 16) : start].split()
        if before and before[-1].lower() in rules.labels and leads_line(text[sentence:], start - sentence - len(before[-1]) - 1):
            return Kind.LABEL, token
        if before and before[-1][-1] in ":：" and len(token) <= 2:
            return Kind.MARKER, token
        return Kind.ORDINAL if len(token) <= 2 else Kind.PLAIN, token
    if "://" in token or "@" in token or token.startswith("www."):
        return Kind.PLAIN, token
    if leads and len(token) <= 4 and _ROMAN.match(token) and token != "I":
        return Kind.MARKER, token
    joined = _joined_before(text, start, token)
    tail = re.split(r"[-/'’&]", joined)[-1]
    for name in (joined, tail) if len(tail) > 1 and joined != tail else (joined,):
        found = _listed(name, rules)
        if found is not None:
            return found, name
    if len(token) == 1 and token.isalpha():
        if leads:
            return Kind.MARKER, token
        return Kind.INITIAL, token
    if _DOTTED.match(joined):
        return Kind.MAYBE, joined
    return Kind.PLAIN, token


def _listed(name: str, rules: Rules) -> Kind | None:
    if name in rules.never:
        return Kind.NEVER
    if name in rules.number:
        return Kind.NUMBER_WORD
    if name in rules.final:
        return Kind.FINAL
    if name in rules.maybe:
        return Kind.MAYBE
    return None
