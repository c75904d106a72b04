"""Quotes and brackets that are open.

A stack of at most DEPTH entries; an opener is forgotten at a newline and after REACH characters, so that an unclosed quote
cannot hold a reply back.
"""

from dataclasses import dataclass

from gateway.speech.segmenter.characters import BRACKETS, CLAUSES, MARKS, OPENERS, QUOTES, is_han
from gateway.speech.segmenter.token import leads_sentence
from gateway.speech.segmenter.view import View

DEPTH = 4
REACH = 400
_INTRODUCERS = frozenset(":：,，道说說问問喊叫答曰")
"""A quotation after one of these is a sentence of its own."""


_NEVER_FIRST = frozenset("，。！？；：、,;:")
"""A mark before one of these, or before a single full stop, opens nothing: it is stray."""


@dataclass(frozen=True, slots=True)
class Opened:
    """`at`: offset in the stream. `introduced`: after a colon, comma or verb of saying. `leads`: it begins the sentence."""

    at: int
    closers: str
    is_quote: bool
    introduced: bool
    leads: bool


class Nesting:
    """The stack."""

    def __init__(self) -> None:
        self.open: list[Opened] = []

    def forget(self, position: int) -> None:
        """Drop openers that are too far back from stream offset `position`."""
        while self.open and position - self.open[0].at > REACH:
            del self.open[0]

    def push(self, view: View, at: int, base: int) -> bool:
        """Push when the character at `at` opens something; `base` is the stream offset of the text. False: the next character is needed."""
        closers = _closers_for(view, at)
        if not closers or len(self.open) >= DEPTH:
            return True
        after = view.text[at + 1 : at + 3]
        if len(after) < 2 and not view.final and (not after or after == "."):
            return False
        if after[:1] in _NEVER_FIRST or (after[:1] == "." and after[1:] != "."):
            return True
        head = view.text[max(view.sentence, at - 4) : at].rstrip() or view.carried
        introduced = bool(head) and head[-1] in _INTRODUCERS
        self.open.append(Opened(base + at, closers, view.text[at] not in BRACKETS, introduced, leads_sentence(view, at)))
        return True

    def closed_by(self, char: str) -> int:
        """Index of the entry that `char` closes, or -1."""
        for index in range(len(self.open) - 1, -1, -1):
            if char in self.open[index].closers:
                return index
        return -1


def _closers_for(view: View, at: int) -> str:
    """What would close the opener at `at`; "" when it opens nothing (an inch mark, a smiley, a stray closer)."""
    char, before = view.text[at], view.before(at)
    is_free = not before or before.isspace()
    if char == '"':
        return char if is_free or before in OPENERS or before in CLAUSES or before in MARKS or is_han(before) else ""
    if char == "”":
        return char if is_free else ""
    if char == "»":
        return "«" if is_free else ""
    if char == "(" and before in (":", ";", "-", "="):
        return ""
    return BRACKETS.get(char) or QUOTES.get(char) or ""
