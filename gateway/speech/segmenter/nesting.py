"""Quotes and brackets that are open, and whether a closer ends the sentence.

A stack of at most DEPTH entries; an opener is forgotten at a newline and after REACH characters, so that an unclosed quote
cannot hold a reply back.
"""

from dataclasses import dataclass

from gateway.speech.segmenter.characters import (
    BOOK_MARKS,
    BRACKETS,
    CLAUSES,
    CLOSERS,
    HARD_STOPS,
    MARKS,
    NEWLINES,
    OPENERS,
    QUOTES,
    STOPS,
    is_han,
    is_hangul,
)
from gateway.speech.segmenter.lookahead import NEED, visible
from gateway.speech.segmenter.rules import Rules
from gateway.speech.segmenter.token import leads_line
from gateway.speech.segmenter.verdict import NEED_LIKELY, Verdict, cut, no

DEPTH = 4
REACH = 400
_INTRODUCERS = frozenset(":：,，")
_SPEECH = frozenset("道说說问問喊叫答曰")


@dataclass(slots=True)
class Opened:
    at: int
    """Offset in the stream."""
    closers: str
    introduced: bool
    leads: bool
    is_quote: bool


class Nesting:
    """The stack. Offsets are those of the stream; `base` says where the buffer begins in it."""

    def __init__(self) -> None:
        self.open: list[Opened] = []

    def forget(self, position: int) -> None:
        while self.open and position - self.open[0].at > REACH:
            del self.open[0]

    def opens(self, text: str, at: int, sentence: int, base: int) -> bool:
        """Push when the character at `at` opens something."""
        char = text[at]
        before = text[at - 1] if at else ""
        closers = BRACKETS.get(char) or QUOTES.get(char) or ""
        if char == '"':
            free = not before or before.isspace() or before in OPENERS or is_han(before) or before in CLAUSES or before in MARKS
            closers = '"' if free else ""
        elif char in "”»" and (not before or before.isspace()):
            closers = char if char == "”" else "«"
        elif char == "(" and before in (":", ";", "-", "="):
            closers = ""
        if not closers or len(self.open) >= DEPTH:
            return False
        head = text[sentence:at].rstrip()
        self.open.append(
            Opened(
                base + at,
                closers,
                bool(head) and (head[-1] in _INTRODUCERS or head[-1] in _SPEECH),
                leads_line(text[sentence:], at - sentence) if at - sentence <= 12 else False,
                char not in BRACKETS,
            )
        )
        return True

    def closes(self, char: str) -> int:
        """Index of the entry that `char` closes, or -1."""
        for index in range(len(self.open) - 1, -1, -1):
            if char in self.open[index].closers:
                return index
        return -1


def judge_closer(text: str, at: int, entry: Opened, outer: bool, base: int, final: bool, rules: Rules) -> Verdict:
    """Verdict on the closer at `at` of `entry`; `outer`: something else is still open."""
    end = at + 1
    if outer or text[at] in BOOK_MARKS:
        return no(end)
    back = at - 1
    while back >= 0 and (text[back] in MARKS or text[back].isspace() or text[back] in CLOSERS):
        back -= 1
    if back < 0 or text[back] not in STOPS or back + base <= entry.at:
        return no(end)
    if entry.introduced and entry.is_quote and text[back] in HARD_STOPS and rules.language != "ja":
        return cut(end)
    while end < len(text) and text[end] in MARKS:
        end += 1
    if end == len(text):
        return no(end) if final else NEED_LIKELY
    char = text[end]
    if char in CLAUSES or char in STOPS or char in NEWLINES or (char in CLOSERS and char not in "\"'"):
        return no(end)
    if is_han(char) or is_hangul(char):
        return _before_han(text, end, entry)
    if not char.isspace():
        return cut(end) if char in OPENERS or ord(char) > 0x2190 else no(end)
    after = visible(text, end, final)
    if after == NEED:
        return NEED_LIKELY
    if after == len(text):
        return no(after)
    char = text[after]
    if char in CLAUSES or char in STOPS or char.islower() or (char in CLOSERS and char not in "\"'«"):
        return no(after)
    if is_han(char) or is_hangul(char):
        return no(after) if entry.leads and entry.is_quote else cut(after)
    return cut(after)


def _before_han(text: str, end: int, entry: Opened) -> Verdict:
    if text[end] in OPENERS:
        return cut(end)
    if entry.is_quote:
        return cut(end) if entry.introduced and text[end] not in "的とっ" else no(end)
    return cut(end) if entry.leads else no(end)
