"""What stands before a full stop: the word or number it is attached to."""

import re

from gateway.speech.segmenter.characters import BULLETS, MARKS, is_han, is_hangul
from gateway.speech.segmenter.kinds import Kind
from gateway.speech.segmenter.rules import Rules
from gateway.speech.segmenter.view import View

LOOK_BACK = 64
"""No word or abbreviation is longer; keeps each decision O(1)."""
LEADING = 12
"""Bullets and marks in front of a list marker."""
_BEFORE = frozenset('"“”‘«»„()[]{}（）【】「」『』《》<>,;，；、。！？：…|=¿¡') | MARKS
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.)+[^\W\d_]{1,4}\Z")
_SPACES = " \u00a0\u202f"
_PARTS = re.compile(r"[-/'’&]")
_ROMAN = re.compile(r"(?=.)(?:X{0,3}(?:IX|IV|V?I{0,3})|x{0,3}(?:ix|iv|v?i{0,3}))\Z")


def token_before(text: str, end: int) -> str:
    """The unspaced run of characters that ends before `end`, up to a quote, bracket or Han character."""
    at, floor = end, max(0, end - LOOK_BACK)
    while at > floor:
        char = text[at - 1]
        if char.isspace() or char in _BEFORE or is_han(char):
            break
        at -= 1
    return text[at:end]


def word_before(text: str, start: int) -> str:
    """The word in front of the token that begins at `start`; "" where none touches it."""
    words = text[max(0, start - 32) : start].split()
    return words[-1] if words and text[start - 1].isspace() else ""


def leads_sentence(view: View, start: int) -> bool:
    """Whether only bullets, marks and spaces stand before `start` in the sentence."""
    if view.carried or start - view.sentence > LEADING:
        return False
    return all(char.isspace() or char in BULLETS or char in MARKS for char in view.text[view.sentence : start])


def kind_of(view: View, end: int) -> tuple[Kind, str]:
    """Kind of the word before the full stop, and the word. `end` is where the word ends."""
    text, rules = view.text, view.rules
    token = token_before(text, end)
    if not token:
        return Kind.EMPTY, token
    start = end - len(token)
    if token.lstrip("-–").isdecimal():
        return _number_kind(view, start, token), token
    if not token.isalpha() and ("://" in token or "@" in token or token.startswith("www.")):
        return Kind.PLAIN, token
    leads = leads_sentence(view, start)
    if leads and _ROMAN.match(token) and token != "I":
        return Kind.MARKER, token
    listed = _look_up(text, start, token, rules)
    if listed is not None:
        return listed, token
    if len(token) == 1 and token.isalpha() and not is_hangul(token):
        before = word_before(text, start).lower()
        if leads or (before in rules.labels and leads_sentence(view, start - 1 - len(before))):
            return Kind.MARKER, token
        return (Kind.LETTERED if before in rules.lettered else Kind.INITIAL), token
    is_unsure = _DOTTED.match(token) or (rules.has_ordinals and token.isupper() and _ROMAN.match(token))
    return (Kind.MAYBE if is_unsure else Kind.PLAIN), token


def _number_kind(view: View, start: int, token: str) -> Kind:
    if leads_sentence(view, start) and len(token) <= 3:
        return Kind.MARKER
    before = word_before(view.text, start)
    if before.lower() in view.rules.labels and leads_sentence(view, start - 1 - len(before)):
        return Kind.MARKER
    if before[-1:] in (":", "：") and token == "1":
        return Kind.MARKER
    return Kind.ORDINAL if len(token) <= 2 else Kind.PLAIN


def _look_up(text: str, start: int, token: str, rules: Rules) -> Kind | None:
    """Kind by the table: the spaced form (`z. B.`) first, then the token, then its part after a hyphen."""
    found = None
    if start > 1 and text[start - 2] == "." and text[start - 1] in _SPACES:
        found = rules.kinds.get(_joined(text, start, token).lower())
    if found is None:
        found = _by_case(token, rules)
    if found is None and not token.isalpha():
        tail = _PARTS.split(token)[-1]
        found = _by_case(tail, rules) if len(tail) > 1 else None
        last = tail.rpartition(".")[2]
        found = found or (_by_case(last, rules) if len(last) > 1 else None)
    if found is None and token.lower().endswith(rules.suffixes):
        found = Kind.NUMBER_WORD
    if found is Kind.UNIT:
        before = word_before(text, start)
        return Kind.FINAL if before[-1:].isdigit() or (before and _ROMAN.match(before)) else Kind.NEVER
    return found


def _by_case(name: str, rules: Rules) -> Kind | None:
    """A word of the table in lower case matches any case, a capital only a capital; a lone capital is an initial unless listed as one."""
    if not name[0].isupper():
        return rules.kinds.get(name)
    if len(name) == 1:
        return rules.kinds.get(name)
    return rules.kinds.get(name.lower()) or rules.kinds.get(name.capitalize())


def _joined(text: str, start: int, token: str) -> str:
    """`z. B` -> `z.b`: short dotted words before the token, spaces dropped."""
    joined = token
    for _ in range(3):
        at = start
        while at > 0 and text[at - 1] in _SPACES:
            at -= 1
        if at == 0 or at == start or text[at - 1] != ".":
            break
        before = token_before(text, at - 1)
        if not 0 < len(before) <= 5 or not before[-1].isalpha():
            break
        joined = f"{before}.{joined}"
        start = at - 1 - len(before)
    return joined
