"""Where a segment may be cut before its sentence ends: early in the first one, and when it grows too long."""

from dataclasses import dataclass

from gateway.speech.segmenter.characters import CLAUSES, CLOSERS, STOPS, is_han

HAN_WEIGHT = 2.4
"""One Han character takes as long to say as about 2.4 Latin ones (limits 25 : 60 and 120 : 280)."""
TAIL = 8
"""A cut leaves at least so many characters to the next segment."""
_CONJUNCTIONS = ("and", "but", "so", "because", "or", "which", "while", "when", "that")
_HAN_CONJUNCTIONS = ("但是", "所以", "因为", "因為", "而且", "不过", "不過", "然后", "然後", "如果")


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """Limits in characters. Source: first-segment latencies measured on own texts (283 en, 170 zh)."""

    early_first: bool = True
    """Cut the first segment at a clause mark, and by length; off for a voice that takes a stream of text."""
    clause_han: int = 6
    clause_words: int = 3
    clause_chars: int = 12
    first_chars: int = 60
    """Latin characters; Han count HAN_WEIGHT each."""
    soft_chars: int = 280
    hard_chars: int = 600
    """A word longer than this is cut anywhere: memory stays bounded."""


DEFAULT = SegmentOptions()


def weight(text: str) -> float:
    """Length in Latin characters."""
    return sum(HAN_WEIGHT if is_han(char) else 1.0 for char in text)


def is_clause_long_enough(text: str, options: SegmentOptions) -> bool:
    """Whether the first clause, without its mark, is worth a segment of its own."""
    han = sum(1 for char in text if is_han(char) and char.isalpha())
    words = sum(1 for word in text.split() if not is_han(word[0]))
    if han:
        return han + words >= options.clause_han
    return words >= options.clause_words and len(text.strip()) >= options.clause_chars


def best_place(text: str, limit: int, least: int) -> int:
    """Offset at which to cut `text[:limit]`: after a stop, else a clause mark, else before a conjunction, else at a space."""
    head = text[:limit]
    for wanted in ("。！？!?", "；;", "，,：—", "、"):
        for at in range(limit - 1, least - 1, -1):
            if head[at] in wanted and _is_free(text, at + 1):
                return _past_closers(text, at + 1, limit)
    conjunction = _conjunction(head, least)
    if conjunction:
        return conjunction
    space = max((at + 1 for at in range(least, limit) if head[at].isspace()), default=0)
    if space:
        return space
    for at in range(limit, least, -1):
        if at < len(text) and (is_han(text[at]) or is_han(text[at - 1])) and _is_free(text, at):
            return at
    return 0


def _past_closers(text: str, at: int, limit: int) -> int:
    while at < limit and (text[at] in CLOSERS or text[at] in STOPS or text[at] in CLAUSES):
        at += 1
    return at


def _is_free(text: str, at: int) -> bool:
    """No number, word or pair is split at `at`."""
    if at >= len(text):
        return False
    left, right = text[at - 1], text[at]
    if right in CLOSERS or right in STOPS or right in CLAUSES:
        return False
    if left.isascii() and right.isascii():
        return left.isspace() or right.isspace()
    return not (left.isdigit() and right.isdigit())


def _conjunction(head: str, least: int) -> int:
    best = 0
    for word in _CONJUNCTIONS:
        at = head.rfind(f" {word} ", least)
        best = max(best, at + 1 if at >= 0 else 0)
    for word in _HAN_CONJUNCTIONS:
        best = max(best, head.rfind(word, least))
    return best if best > least else 0
