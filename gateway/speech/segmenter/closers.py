"""Whether a closing quote or bracket ends the sentence that stopped inside it."""

from gateway.speech.segmenter.characters import (
    BOOK_MARKS,
    CLAUSES,
    CLOSERS,
    HARD_STOPS,
    MARKS,
    NEWLINES,
    OPENERS,
    QUOTE_CLOSERS,
    STOPS,
    is_han,
    is_hangul,
)
from gateway.speech.segmenter.lookahead import GOES_ON, NEED, next_start, words_after
from gateway.speech.segmenter.nesting import Opened
from gateway.speech.segmenter.verdict import NEED_LIKELY, NEED_UNLIKELY, Verdict, cut, no
from gateway.speech.segmenter.view import View

_ONLY_CLOSERS = CLOSERS - frozenset("“«\"'")
_TRANSPARENT = MARKS | QUOTE_CLOSERS | frozenset("\"'’ ")


def judge_closer(view: View, at: int, entry: Opened, is_outermost: bool, opened: int) -> Verdict:
    """Verdict on the closer at `at` of `entry`, which opened at `opened` in the text (negative: before it)."""
    text, end = view.text, at + 1
    if not is_outermost or text[at] in BOOK_MARKS:
        return no(end)
    stop = _stop_inside(text, at, opened)
    if stop < 0:
        return no(end)
    if not entry.is_quote and entry.leads and text[stop] in HARD_STOPS:
        return cut(end)
    if entry.is_quote and entry.introduced and view.rules.language != "ja" and (text[stop] in HARD_STOPS or is_han(view.before(stop))):
        return cut(end)
    while end < len(text) and text[end] in MARKS and end - at < 8:
        end += 1
    if end == len(text):
        return no(end) if view.final else NEED_LIKELY
    char = text[end]
    if char in NEWLINES or char in CLAUSES or char in STOPS or char in _ONLY_CLOSERS:
        return no(end)
    if is_han(char) or is_hangul(char):
        return _judge_before_han(char, end, entry)
    if not char.isspace():
        return cut(end) if char in OPENERS or ord(char) > 0x2190 else no(end)
    return _judge_spaced(view, end, entry)


def _stop_inside(text: str, at: int, opened: int) -> int:
    """Offset of the stop right before the closer at `at`, or -1. An ellipsis in brackets of its own is none."""
    back = at - 1
    while back > opened and at - back < 8 and text[back] in _TRANSPARENT:
        back -= 1
    if back <= opened or back < 0 or text[back] not in STOPS:
        return -1
    return -1 if back - opened <= 3 and not text[opened + 1 : back + 1].strip(".… ") else back


def _judge_before_han(char: str, end: int, entry: Opened) -> Verdict:
    if char in OPENERS:
        return cut(end)
    if entry.is_quote:
        return cut(end) if entry.introduced and char not in "的とっ" else no(end)
    return cut(end) if entry.leads else no(end)


def _judge_spaced(view: View, end: int, entry: Opened) -> Verdict:
    """A space after the closer: lower case goes on, a capital begins anew, unless a speaker is named (`"Stop!" John said`)."""
    text = view.text
    start = next_start(text, end, view.final)
    if start == NEED:
        return NEED_LIKELY
    if start in (GOES_ON, len(text)) or text[start].islower():
        return no(end)
    char = text[start]
    if is_han(char) or is_hangul(char):
        return no(end) if entry.is_quote and not entry.introduced else cut(start)
    if entry.is_quote and entry.leads and char.isupper():
        words = words_after(text, start, 3, view.final)
        if words is None:
            return NEED_UNLIKELY
        if any(word in view.rules.speech for word in words[1:]):
            return no(end)
    return cut(start)
