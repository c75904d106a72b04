"""Whether a stop with nothing open ends the sentence: hard stops, `!`, `?`, ellipses, and a stop with no space after it.

Pure: the answer depends on the text read so far and on the characters after the stop, read strictly forward.
"""

from gateway.speech.segmenter.characters import CLAUSES, CLOSERS, HARD_STOPS, MARKS, NEWLINES, OPENERS, SOFT_STOPS, is_han
from gateway.speech.segmenter.dots import judge_dot
from gateway.speech.segmenter.kinds import Kind
from gateway.speech.segmenter.lookahead import GOES_ON, NEED, next_start, word_at
from gateway.speech.segmenter.token import kind_of, token_before
from gateway.speech.segmenter.verdict import NEED_AFTER_STOP, NEED_LIKELY, NEED_UNLIKELY, Verdict, cut, no
from gateway.speech.segmenter.view import View

LONGEST_RUN = 32
"""`......` and the closers after it: a longer run is read in parts, so that it cannot hold a decision for ever."""
_AFTER_STOP = MARKS | frozenset("'’\"”»)]）")
_PARTICLES = frozenset("了吗呢吧啊呀哦啦嘛哈")
"""They end Chinese sentences, never a file name: the ASCII stop after one needs no next character."""
_FIRST_PERSON = frozenset(("I", "I'm", "I'll", "I've", "I'd", "I’m", "I’ll", "I’ve", "I’d"))


def judge_stop(view: View, at: int) -> Verdict:
    """Verdict on the stop at `at`; nothing is open there."""
    text, char, before = view.text, view.text[at], view.before(at)
    if char in HARD_STOPS:
        return _judge_hard(view, at, before)
    if (is_han(before) and char in "!?") or (before in _PARTICLES and char == "."):
        return cut(at + 1)
    run_end = _past(text, at, SOFT_STOPS)
    end = _past(text, run_end, _AFTER_STOP)
    run = text[at:run_end]
    if end == len(text):
        if view.final:
            return no(end)
        return NEED_AFTER_STOP
    if text[end] in HARD_STOPS or text[end] in NEWLINES:
        return no(end)
    if not run.strip(".…") and (len(run) > 1 or run == "…" or _follows_dot(text, at)):
        return _judge_ellipsis(view, at, end)
    if not text[end].isspace():
        return _judge_glued(view, at, end, run)
    if run.strip("."):
        return _judge_mark(view, at, end, run)
    return judge_dot(view, at, end)


def _follows_dot(text: str, at: int) -> bool:
    """`. . .`: a later dot of a spaced ellipsis."""
    return at > 1 and text[at - 1] == " " and text[at - 2] == "."


def _past(text: str, at: int, chars: frozenset[str]) -> int:
    end = min(len(text), at + LONGEST_RUN)
    while at < end and text[at] in chars:
        at += 1
    return at


def is_likely(view: View, at: int) -> bool:
    """Whether the stop at `at`, the last of the text, ends a sentence in nine of ten cases (measured): after a plain word of three
    letters, or `!` and `?`."""
    if view.text[at] in "!?":
        return True
    kind, token = kind_of(view, at)
    return view.text[at : at + 2].strip("\"'”’»*_)") == "." and kind is Kind.PLAIN and len(token) >= 3 and token.isalpha()


def _judge_hard(view: View, at: int, before: str) -> Verdict:
    """Decided by itself; only a Japanese name in 。 waits for its particle (hiragana before the stop means a verb form)."""
    if view.rules.language == "ja" and view.text[at] == "。" and before and not "\u3040" <= before <= "\u309f":
        if at + 1 == len(view.text):
            return no(at + 1) if view.final else NEED_LIKELY
        if view.text[at + 1] in "のを":
            return no(at + 1)
    return cut(at + 1)


def _judge_ellipsis(view: View, at: int, end: int) -> Verdict:
    """`...` ends a sentence only before a capital; `……` between Han never does."""
    text, before = view.text, view.before(at)
    if is_han(before) and "…" in text[at:end]:
        return no(end)
    if not text[end].isspace():
        return cut(end) if text[at] == "." and is_han(text[end]) else no(end)
    start = next_start(text, end, view.final)
    if start == NEED:
        return NEED_UNLIKELY
    if start in (GOES_ON, len(text)) or not _is_capital(text[start]):
        return no(end)
    word = word_at(text, start, view.final)
    if word is None:
        return NEED_UNLIKELY
    is_pause = word in _FIRST_PERSON and view.rules.lower_starts and text[at:end] != ".."
    return no(end) if is_pause else cut(start)


def _is_capital(char: str) -> bool:
    """A capital, a letter of a script without case, or an opener."""
    return not char.islower() if char.isalpha() else char in OPENERS


def _judge_mark(view: View, at: int, end: int, run: str) -> Verdict:
    """`!` or `?` and a space: a boundary, save for a name (`Yahoo! was`) and a closer or comma that follows the space."""
    text = view.text
    start = next_start(text, end, view.final)
    if start == NEED:
        return NEED_LIKELY
    if start in (GOES_ON, len(text)):
        return no(end)
    if text[start].islower():
        is_quoted = end > at + len(run) or any(char in "'’\"”»" for char in text[end:start])
        is_apart = view.before(at).isspace() and view.rules.language != "fr"
        if is_quoted or is_apart or ("!" in run and (not view.rules.lower_starts or token_before(text, at)[:1].isupper())):
            return no(end)
    return cut(start)


def _judge_glued(view: View, at: int, end: int, run: str) -> Verdict:
    """A stop with no space after it."""
    char, before = view.text[end], view.before(at)
    if char in CLAUSES or char in CLOSERS:
        return no(end)
    if run != ".":
        return _judge_glued_mark(view, at, end)
    if end > at + 1:
        return cut(end) if is_han(char) else no(end)
    if is_han(char) or is_han(before):
        return _judge_dot_by_han(view, at, end)
    if char == "[":
        return _judge_reference(view, end)
    if char.isalnum() or char in "@/\\-_":
        return no(end)
    kind, _ = kind_of(view, at)
    return cut(end) if kind is Kind.PLAIN and (char in OPENERS or ord(char) > 0x2190) else no(end)


def _judge_glued_mark(view: View, at: int, end: int) -> Verdict:
    """`!`, `?` or a full-width `．` before a letter: addresses and decimals go on."""
    char, token = view.text[end], token_before(view.text, at)
    if char.isdigit() and view.text[at] == "．":
        return no(end)
    if char.isascii() and (char.isalnum() or char in "=&/.-_"):
        return cut(end) if char.isupper() and token[-1:].islower() and token.isalpha() else no(end)
    return cut(end)


def _judge_dot_by_han(view: View, at: int, end: int) -> Verdict:
    """ASCII stops between Han end a sentence; after a Latin letter alone (`A.还是B.`) they do not."""
    if is_han(view.before(at)):
        return no(end) if view.text[end].isascii() and view.text[end].isalnum() else cut(end)
    kind, _ = kind_of(view, at)
    return cut(end) if kind in (Kind.PLAIN, Kind.ORDINAL, Kind.FINAL) else no(end)


def _judge_reference(view: View, at: int) -> Verdict:
    """`before.[3] Later`: the reference stays with its sentence."""
    text = view.text
    end = _past(text, at + 1, frozenset("0123456789,–-"))
    if end + 1 >= len(text):
        return no(len(text)) if view.final else NEED_UNLIKELY
    if text[end] != "]" or end == at + 1:
        return no(at)
    return cut(end + 1) if text[end + 1].isspace() and text[end + 1] not in NEWLINES else no(end + 1)
