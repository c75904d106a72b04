"""Whether a full stop that is followed by a space ends the sentence: abbreviations, initials, ordinals, list markers."""

import re

from gateway.speech.segmenter.kinds import Kind
from gateway.speech.segmenter.lookahead import GOES_ON, NEED, next_start, word_at
from gateway.speech.segmenter.token import kind_of, word_before
from gateway.speech.segmenter.verdict import NEED_LIKELY, NEED_UNLIKELY, Verdict, cut, no
from gateway.speech.segmenter.view import View

_ATTACHED = frozenset("EST EDT CST CDT MST MDT PST PDT GMT UTC BST CET CEST IST ET PT CT MT KG KGaA".split())  # noqa: SIM905  # one line, as tables are
_END_OF_TIME = re.compile(r"[ap]\.?m\Z|^m\Z|^etc\Z", re.I)
"""`7 p.m. 7 a.m. is`: a number may begin the next sentence; after `Jan.` or `Inc.` it belongs to the word."""
_ADVERBIAL_WORDS = 4
"""`Around 5 p.m. Bob called`: so few words cannot be a sentence of their own."""


def judge_dot(view: View, at: int, end: int) -> Verdict:
    """Verdict on the full stop at `at`; the space stands at `end`, after closers if there are any."""
    text, rules = view.text, view.rules
    if rules.language == "hy":
        return no(end)  # the Armenian full stop is a colon; the dot is a lighter pause
    word_end = _word_end(text, at)
    kind, token = kind_of(view, word_end)
    if kind in (Kind.NEVER, Kind.MARKER):
        return no(end)
    is_bare = end == at + 1 and word_end == at
    if kind is Kind.PLAIN and rules.lower_starts and is_bare:
        return cut(end + 1)
    start = next_start(text, end, view.final)
    if start == NEED:
        return NEED_LIKELY if kind is Kind.PLAIN and len(token) > 2 else NEED_UNLIKELY
    if start in (GOES_ON, len(text)) or text[start].islower():
        return no(end)
    if kind in (Kind.PLAIN, Kind.EMPTY, Kind.LETTERED) or (kind is Kind.ORDINAL and not rules.has_ordinals):
        return cut(start)
    return _judge_by_next(view, word_end, end, start, kind, token)


def _word_end(text: str, at: int) -> int:
    """Where the word before the stop ends: text tokenised with spaces has one between (`Mr .`)."""
    while at > 0 and text[at - 1] == " ":
        at -= 1
    return at


def _judge_by_next(view: View, word_end: int, end: int, start: int, kind: Kind, token: str) -> Verdict:
    """Kinds that may end a sentence: the next word tells."""
    char = view.text[start]
    if kind in (Kind.FINAL, Kind.MAYBE) and (char in "-–(" or (char.isdigit() and not _END_OF_TIME.search(token))):
        return no(end)
    if kind is Kind.NUMBER_WORD and (char.isdigit() or char in "#(["):
        return no(end)
    word = word_at(view.text, start, view.final)
    if word is None:
        return NEED_UNLIKELY
    if kind is Kind.ORDINAL:
        return _judge_ordinal(view, word_end - len(token), end, start, word)
    if kind is Kind.NUMBER_WORD:
        return no(end) if word.isupper() and len(word) <= 4 and word != "I" else cut(start)
    if kind is Kind.FINAL:
        return _judge_final(view, end, start, word, token)
    if kind is Kind.INITIAL and token == "I" and word_before(view.text, word_end - 1).islower():
        return cut(start)
    return cut(start) if _is_starter(view, start, word) else no(end)


def _is_starter(view: View, start: int, word: str) -> bool:
    """A frequent first word; a letter with a full stop of its own is another initial (`A. E.`)."""
    after = view.text.find(word, start) + len(word) if word else 0
    if len(word) == 1 and view.text[after : after + 1] == ".":
        return False
    return word.lower().replace("’", "'") in view.rules.starters


def _judge_ordinal(view: View, number: int, end: int, start: int, word: str) -> Verdict:
    """`am 3. Oktober`; a dash after the stop joins a range (`1. - 3.`)."""
    rules = view.rules
    if view.text[start] in "-–" or view.text[start].isdigit() or word.lower() in rules.months:
        return no(end)
    return no(end) if word and word_before(view.text, number).lower() in rules.leads else cut(start)


def _judge_final(view: View, end: int, start: int, word: str, token: str) -> Verdict:
    """`etc.`, `p.m.`, `Inc.` before a capital: the end, unless a time zone, a title or the main clause of a short start follows."""
    rules = view.rules
    if word in _ATTACHED or (word.lower() in rules.titles and word.lower() not in rules.starters):
        return no(end)
    after = view.text.find(word, start) + len(word)
    if word.lower() in rules.kinds and view.text[after : after + 1] == ".":
        return no(end)  # `Co. Ltd.`
    if _is_starter(view, start, word):
        return cut(start)
    said = view.text[view.sentence : end].split()
    if len(said) <= _ADVERBIAL_WORDS and said and said[0].lower() in rules.adverbial and not view.carried:
        return no(end)
    return cut(start)
