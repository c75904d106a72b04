"""Where a segment may end before its sentence does: early in the first one, and when it grows too long.

A cut never falls inside a word, number, address, pair of marks or character cluster.
"""

import unicodedata
from dataclasses import dataclass

from gateway.speech.segmenter.characters import CLAUSES, CLOSERS, STOPS, is_han, is_hangul

HAN_WEIGHT = 2.4
"""One Han character or Hangul syllable takes as long to say as about 2.4 Latin ones (limits 25 : 60 and 120 : 280)."""
TAIL = 8
"""A cut leaves at least so many Latin characters (half of it Han) to the next segment."""
LIST_HAN = 8
"""`、` parts the items of a list: only after so many Han characters."""
_RANKS = ("。！？!?।؟", "；;؛", "，,：:—،", "、")
_CONJUNCTIONS = tuple("and but so because or which while when that und aber weil et mais y pero и но".split())  # noqa: SIM905  # a table
_HAN_CONJUNCTIONS = ("但是", "所以", "因为", "因為", "而且", "不过", "不過", "然后", "然後", "如果", "并且", "或者")
_JOINERS = frozenset("\u200d\ufe0f\ufe0e\u20e3")


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Limits in characters. Source: characters until the first segment, measured on own texts (283 English, 170 Chinese)."""

    early_first: bool = True
    """Cut the first segment at a clause mark, and by length; off for a voice that takes a stream of text."""
    clause_han: int = 6
    clause_words: int = 3
    clause_chars: int = 12
    first_chars: int = 60
    """Latin characters; Han and Hangul count HAN_WEIGHT each."""
    soft_chars: int = 280
    hard_chars: int = 600
    """A word longer than this is cut anywhere: memory stays bounded."""


DEFAULT = SegmentOptions()


def weight(text: str) -> float:
    """Length in Latin characters."""
    return len(text) if text.isascii() else len(text) + (HAN_WEIGHT - 1) * sum(is_han(char) or is_hangul(char) for char in text)


def is_clause_end(text: str, at: int, final: bool, options: SegmentOptions) -> bool | None:
    """Whether the first segment may end after the clause mark at `at`; None when the next character is needed."""
    mark, head = text[at], text[:at]
    if not _is_long_enough(head, mark, options) or head.count("**") % 2:
        return False
    if is_han(mark) and mark != "：" and not head[-1].isdigit():
        return True
    if at + 1 == len(text):
        return False if final else None
    after = text[at + 1]
    if is_han(mark):
        return not after.isdigit() and after not in "\n"
    if not after.isspace() or after == "\n":
        return False
    if at + 2 == len(text):
        return False if final else None
    return not text[at + 2].isdigit()  # `Jan. 3, 1990`


def _is_long_enough(head: str, mark: str, options: SegmentOptions) -> bool:
    han = sum(1 for char in head if is_han(char) and char.isalpha())
    words = sum(1 for word in head.split() if not is_han(word[0]) and any(map(str.isalnum, word)))
    if mark == "、" and han < LIST_HAN:
        return False
    if han:
        return han + words >= options.clause_han
    return words >= options.clause_words and len(head.strip()) >= options.clause_chars


def best_place(text: str, least: int) -> int:
    """Offset between `least` and the end at which to cut: after a stop, else a clause mark, else before a conjunction, else at a
    space, else between Han. 0 when there is none."""
    limit = len(text) - (TAIL // 2 if is_han(text[-1]) else TAIL)
    for rank in _RANKS:
        for at in range(limit - 1, least - 1, -1):
            if text[at] in rank and is_free(text, at + 1):
                return at + 1
    conjunction = _conjunction(text[:limit], least)
    if conjunction:
        return conjunction
    for at in range(limit, least, -1):
        if text[at - 1].isspace() and is_free(text, at):
            return at
    for at in range(limit, least, -1):
        if (is_han(text[at]) or is_han(text[at - 1])) and is_free(text, at):
            return at
    return 0


def is_free(text: str, at: int) -> bool:
    """Whether nothing that belongs together is parted at `at`; the character after it must be known."""
    left, right = text[at - 1], text[at]
    if right in CLOSERS or right in STOPS or right in CLAUSES or not is_cluster_end(text, at) or text.count("**", 0, at) % 2:
        return False
    if left.isspace():
        return not (right.isdigit() and text[:at].rstrip()[-1:].isdigit())
    if is_han(left) or is_han(right):
        return not (left.isdigit() and right.isdigit())
    return right.isspace()


def is_cluster_end(text: str, at: int) -> bool:
    """No combining mark, joiner or surrogate half is parted from its character."""
    left, right = text[at - 1], text[at]
    if right in _JOINERS or left == "\u200d" or unicodedata.combining(right) or "\U0001f3fb" <= right <= "\U0001f3ff":
        return False
    return not ("\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff")


def hard_place(text: str) -> int:
    """The end of the text, or up to 16 characters before it where a cluster would be parted."""
    for at in range(len(text) - 1, max(1, len(text) - 17), -1):
        if is_cluster_end(text, at):
            return at
    return len(text) - 1


def _conjunction(head: str, least: int) -> int:
    best = 0
    for word in _CONJUNCTIONS:
        best = max(best, head.rfind(f" {word} ", least) + 1)
    for word in _HAN_CONJUNCTIONS:
        best = max(best, head.rfind(word, least))
    return best if best > least and is_free(head, best) else 0
