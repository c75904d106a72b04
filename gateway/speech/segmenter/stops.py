"""Whether a full stop, `!`, `?` or ellipsis with nothing open ends the sentence.

Pure: the answer depends on the text read so far and on the characters after the stop, read strictly forward.
"""

import re

from gateway.speech.segmenter.characters import (
    CLAUSES,
    CLOSERS,
    HARD_STOPS,
    MARKS,
    NEWLINES,
    OPENERS,
    SOFT_STOPS,
    STOPS,
    is_han,
)
from gateway.speech.segmenter.lookahead import NEED, visible, word_at
from gateway.speech.segmenter.rules import Rules
from gateway.speech.segmenter.token import Kind, kind_of, token_before
from gateway.speech.segmenter.verdict import NEED_LIKELY, NEED_UNLIKELY, Verdict, cut, no

_CITATION = re.compile(r"\[\d{0,4}\]?|\[\d{1,4}\]")


def judge_stop(text: str, at: int, sentence: int, final: bool, rules: Rules) -> Verdict:
    """Verdict on the stop at `at`; nothing is open there, and `sentence` is where the sentence began."""
    char = text[at]
    before = text[at - 1] if at else ""
    if char in HARD_STOPS:
        return _hard(text, at, before, final, rules)
    if is_han(before) and char in "!?":
        return cut(at + 1)
    end = at + 1
    while end < len(text) and text[end] in SOFT_STOPS:
        end += 1
    run = text[at:end]
    while end < len(text) and (text[end] in MARKS or text[end] in "'’\"”»)]）"):
        end += 1
    if end == len(text):
        if final:
            return no(end)
        return NEED_LIKELY if _is_likely(text, at, run, sentence, rules) else NEED_UNLIKELY
    if text[end] in HARD_STOPS or text[end] in NEWLINES:
        return no(end)
    if run.strip(".…") == "" and (len(run) > 1 or run == "…" or before.isspace()):
        return _ellipsis(text, at, end, final, rules)
    if text[end].isspace():
        if "." in run and run.strip(".") == "":
            return _dot_and_space(text, at, end, sentence, final, rules)
        return _mark_and_space(text, at, end, run, sentence, final, rules)
    return _glued(text, at, end, run, sentence, final, rules)


def _hard(text: str, at: int, before: str, final: bool, rules: Rules) -> Verdict:
    """Decided by itself; only a Japanese name in 。 waits for its particle (kana before the stop means a verb form)."""
    if rules.language == "ja" and text[at] == "。" and before and not "\u3040" <= before <= "\u309f":
        if at + 1 == len(text):
            return no(at + 1) if final else NEED_LIKELY
        if text[at + 1] in "のを":
            return no(at + 1)
    return cut(at + 1)


def _is_likely(text: str, at: int, run: str, sentence: int, rules: Rules) -> bool:
    if run[0] in "!?":
        return True
    kind, token = kind_of(text, at, sentence, rules)
    return len(run) == 1 and kind is Kind.PLAIN and len(token) >= 3 and token.isalpha()


def _ellipsis(text: str, at: int, end: int, final: bool, rules: Rules) -> Verdict:
    """`...` ends a sentence only before a capital; `……` between Han never does; spaced dots are read as one."""
    if is_han(text[at - 1] if at else "") and "…" in text[at:end]:
        return no(end)
    if not text[end].isspace():
        if text[at] == "." and is_han(text[end]):
            return cut(end)
        return no(end)
    after = visible(text, end, final)
    if after == NEED:
        return NEED_UNLIKELY
    if after == len(text) or text[after] in STOPS:
        return no(max(after, end))
    return cut(after) if _opens_sentence(text, after) else no(after)


def _opens_sentence(text: str, at: int) -> bool:
    """A capital, a digit, an opener, or a letter of a script without case."""
    char = text[at]
    if char.isalpha():
        return not char.islower()
    return char not in CLAUSES and char not in STOPS and (char not in CLOSERS or char in "\"'")


def _glued(text: str, at: int, end: int, run: str, sentence: int, final: bool, rules: Rules) -> Verdict:
    """A stop with no space after it."""
    char, before = text[end], text[at - 1] if at else ""
    if run[0] == "." and len(run) == 1 and end == at + 1:
        if is_han(char) or is_han(before):
            return _dot_by_han(text, at, end, sentence, rules)
        if char == "[":
            return _citation(text, end, final)
        if char.isalnum() or char in CLAUSES or char in CLOSERS or char in "@/\\-_":
            return no(end)
        kind, _ = kind_of(text, at, sentence, rules)
        return cut(end) if kind is Kind.PLAIN and (char in OPENERS or ord(char) > 0x2190) else no(end)
    if char in CLAUSES or char in CLOSERS:
        return no(end)
    if run[0] in "!?" or "!" in run or "?" in run:
        if char.isascii() and (char.isalnum() or char in "=&/.-_"):
            return no(end)
        return cut(end)
    return no(end)


def _dot_by_han(text: str, at: int, end: int, sentence: int, rules: Rules) -> Verdict:
    char, before = text[end], text[at - 1] if at else ""
    if char in CLAUSES or char in CLOSERS:
        return no(end)
    if is_han(before):
        return no(end) if char.isascii() and char.isalnum() else cut(end)
    kind, _ = kind_of(text, at, sentence, rules)
    return cut(end) if kind in (Kind.PLAIN, Kind.ORDINAL, Kind.FINAL) else no(end)


def _citation(text: str, at: int, final: bool) -> Verdict:
    """`before.[3] Later`: the reference stays with its sentence."""
    end = at + 1
    while end < len(text) and text[end].isdigit() and end - at < 6:
        end += 1
    if end == len(text):
        return no(end) if final else NEED_UNLIKELY
    if text[end] != "]" or end == at + 1:
        return no(at)
    if end + 1 == len(text):
        return no(end + 1) if final else NEED_UNLIKELY
    return cut(end + 1) if text[end + 1].isspace() and text[end + 1] not in NEWLINES else no(end + 1)


def _mark_and_space(text: str, at: int, end: int, run: str, sentence: int, final: bool, rules: Rules) -> Verdict:
    """`!` or `?` and a space: a boundary, save for a name (`Yahoo! was`) and a closer that follows the space."""
    after = visible(text, end, final)
    if after == NEED:
        return NEED_LIKELY
    if after == len(text):
        return no(after)
    char = text[after]
    if char in STOPS or char in CLAUSES or (char in CLOSERS and char not in "\"'«"):
        return no(after)
    if char.islower() and (run == "!" or end > at + len(run)):
        name = token_before(text, at)
        if name[:1].isupper() or end > at + len(run):
            return no(after)
    return cut(after)


def _dot_and_space(text: str, at: int, end: int, sentence: int, final: bool, rules: Rules) -> Verdict:
    kind, token = kind_of(text, at, sentence, rules)
    if kind in (Kind.NEVER, Kind.MARKER, Kind.LABEL):
        return no(end)
    if kind is Kind.PLAIN and rules.lower_starts and end == at + 1:
        return cut(end + 1)
    after = visible(text, end, final)
    if after == NEED:
        return NEED_UNLIKELY if kind is not Kind.PLAIN else NEED_LIKELY
    if after == len(text):
        return no(after)
    char = text[after]
    if char in STOPS or char in CLAUSES or (char in CLOSERS and char not in "\"'«"):
        return no(after)
    if kind is Kind.PLAIN or kind is Kind.EMPTY:
        return no(after) if char.islower() else cut(after)
    if char.islower():
        return no(after)
    if kind is Kind.ORDINAL:
        return _ordinal(text, after, final, rules)
    if kind is Kind.NUMBER_WORD:
        return no(after) if char.isdigit() or char in "#(" else _by_word(text, after, final, rules, token, sentence)
    if char.isdigit():
        return no(after)
    return _by_next(text, at, after, final, rules, kind, token)


def _ordinal(text: str, after: int, final: bool, rules: Rules) -> Verdict:
    if not rules.has_ordinals or not text[after].isalpha():
        return cut(after)
    word = word_at(text, after, final)
    if word is None:
        return NEED_UNLIKELY
    return no(after) if word.lower() in rules.months else cut(after)


def _by_word(text: str, after: int, final: bool, rules: Rules, token: str, sentence: int) -> Verdict:
    word = word_at(text, after, final)
    if word is None:
        return NEED_UNLIKELY
    return no(after) if word.isupper() and len(word) <= 4 and word != "I" else cut(after)


def _by_next(text: str, at: int, after: int, final: bool, rules: Rules, kind: Kind, token: str) -> Verdict:
    """Words that may end a sentence: the next word tells."""
    word = word_at(text, after, final)
    if word is None:
        return NEED_UNLIKELY
    lower = word.lower()
    if kind is Kind.FINAL:
        return no(after) if lower in rules.never else cut(after)
    if kind is Kind.INITIAL and token == "I":
        return cut(after)
    return cut(after) if lower in rules.starters and len(text) > after else no(after)
