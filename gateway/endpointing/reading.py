"""What the words so far say about whether more will come: a sentence that is complete, open, hesitating, or a number being dictated.

Pure, and only a hint: recognizers put a full stop behind nearly everything, so a mark counts for little against a last word that
ends no sentence ("and", "the", "因为"). Marks and words are those of English and Chinese; other languages are judged by marks alone.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from enum import StrEnum, auto
from pathlib import Path

from gateway.endpointing.script import simplified


class Reading(StrEnum):
    """Of an unfinished utterance's text."""

    UNREAD = auto()  # its text is awaited
    EMPTY = auto()  # nothing was understood
    COMPLETE = auto()  # ends like a sentence
    OPEN = auto()  # could end here
    LEADING = auto()  # begins like the first half of a sentence, and there is no second one
    DICTATING = auto()  # digits, and not a whole number of them
    HESITATING = auto()  # ends in a filler, or in a word that wants another
    DOUBTFUL = auto()  # the recognizer guessed its words: mumbling, a filler that it took for a word


_PATIENT = (Reading.HESITATING, Reading.DICTATING, Reading.LEADING)  # more will come; who waits longest first
_GUESSED = -0.8  # mean log-probability of a token: fillers read as words had -0.8 to -1.6, of 118 ends three were below

_STOPS = ".?!。？！"
_PAUSES = (",", "，", "、", ";", "；", ":", "：", "-", "–", "—", "…", "...")
_WORDS = json.loads(Path(__file__).with_name("words.json").read_text("utf-8"))
_FILLERS = frozenset(_WORDS["fillers"])
_NEVER_LAST = frozenset(_WORDS["never_last"])  # no sentence ends with these, whatever mark the recognizer put behind them
_RARELY_LAST = frozenset(_WORDS["rarely_last"])  # "what for?" ends; "I want a table for." is a recognizer's guess
_SELDOM_LAST = frozenset(_WORDS["seldom_last"])  # "I think so.": with a mark, yes; without one, hardly
_ANSWERS = frozenset(_WORDS["answers"])  # fillers that are a whole answer as well
_PHRASES = tuple(_WORDS["phrases"])  # said while thinking
_OPENERS = frozenset(_WORDS["openers"])  # nothing else in the last clause: it has only begun
_HALF = re.compile(rf"(?:{'|'.join(sorted(_WORDS['half'], key=len, reverse=True))})(?![a-z'])")  # "When I was young": and then?
_CLAUSE = re.compile(r"[,，;；.。?？!！:：…]+")
_HAN_LAST = tuple(sorted((w for w in _FILLERS | _NEVER_LAST | _RARELY_LAST | _SELDOM_LAST if ord(w[0]) > 0x2E80), key=len, reverse=True))
_NUMBER_WORDS = frozenset(_WORDS["digits"])
_HAN_DIGITS = frozenset("零〇一二三四五六七八九幺两")
_WHOLE_NUMBERS = frozenset((10, 11, 16, 18))  # digits of a phone, card or identity number: then it is said
_LEADING_ZERO = re.compile(r"(?<![\d.:])0\d+$")  # "017" is no quantity
_NUMBER_ASKED = re.compile("|".join(_WORDS["number_asked"]))
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def read(text: str) -> Reading:
    """How the text ends."""
    text = simplified(unicodedata.normalize("NFKC", text).strip().casefold())
    bare = text.rstrip(" " + _STOPS + "\"')）」』”’")
    if not _WORD.search(text):
        return Reading.EMPTY
    last = _last_word(bare.rstrip(" ,，、;:-–—…"))
    is_marked = text[-1] in _STOPS and not text.endswith("...")
    if _is_answer(bare):
        return Reading.OPEN if is_marked else Reading.HESITATING
    is_asked = text.endswith(("?", "!"))
    if last in _FILLERS or last in _NEVER_LAST or (last in _RARELY_LAST and not is_asked) or (last in _SELDOM_LAST and not is_marked):
        return Reading.HESITATING
    clauses = [clause.strip() for clause in _CLAUSE.split(bare) if clause.strip()]
    if not is_asked and (bare.rstrip(" ,，、…").endswith(_PHRASES) or clauses[-1] in _OPENERS):
        return Reading.HESITATING
    if not is_asked and _is_dictating(bare):
        return Reading.DICTATING
    if text.endswith(_PAUSES):
        return Reading.HESITATING
    if not is_asked and len(clauses) == 1 and _HALF.match(bare):
        return Reading.LEADING
    return Reading.COMPLETE if is_marked else Reading.OPEN


def read_heard(text: str, rivals: Sequence[str] = (), certainty: float | None = None) -> Reading:
    """How a recognizer's text ends, with what else it may have been.

    `rivals` are readings nearly as likely: one that wants more is believed over a best one that is complete ("a hotel enrollment", "a
    hotel in Rome and"). `certainty`: mean log-probability of a token.
    """
    reading = read(text)
    if reading not in (Reading.COMPLETE, Reading.OPEN):
        return reading
    others = {read(rival) for rival in rivals}
    patient = next((known for known in _PATIENT if known in others), None)
    if patient is not None:
        return patient
    return Reading.DOUBTFUL if certainty is not None and certainty < _GUESSED else reading


def _last_word(text: str) -> str:
    """The last word; of Chinese, which writes no spaces, the longest listed word that the text ends with."""
    if text and ord(text[-1]) > 0x2E80:
        return next((word for word in _HAN_LAST if text.endswith(word)), text[-1])
    words = _WORD.findall(text)
    return words[-1].replace("’", "'") if words else ""


def _is_answer(text: str) -> bool:
    words = [word for word in re.split(r"[\s,，、.。…]+", text) if word]
    return bool(words) and all(word in _ANSWERS for word in words)


def _is_dictating(text: str) -> bool:
    """Whether the text ends in a run of digits, said one by one or in groups, that is not yet a whole number of the usual kinds."""
    n_digits, n_groups, before = _digit_tail(text)
    if n_digits == 0 or n_digits in _WHOLE_NUMBERS:
        return False
    if _NUMBER_ASKED.search(before):
        return n_digits < max(_WHOLE_NUMBERS)
    return (n_groups >= 2 and n_digits >= 3) or n_digits >= 5 or _LEADING_ZERO.search(text) is not None


def _digit_tail(text: str) -> tuple[int, int, str]:
    """Digits at the end of the text, the groups they stand in, and the text before them."""
    n_digits = n_groups = 0
    end = len(text)
    while end > 0:
        piece = text[:end].rstrip(" ,，、.-–()")
        if text[len(piece) : end] == "." and piece[-1:].isdigit() and n_digits:
            return 0, 0, text  # "3.14" is a quantity
        if piece and piece[-1] in _HAN_DIGITS:
            start = len(piece)
            while start > 0 and piece[start - 1] in _HAN_DIGITS:
                start -= 1
            n_digits, n_groups = n_digits + len(piece) - start, n_groups + len(piece) - start
        elif (match := re.search(r"[^\W_]+$", piece)) is None:
            break
        elif match[0].isdecimal():
            start = match.start()
            n_digits, n_groups = n_digits + len(match[0]), n_groups + 1
        elif tail := re.search(r"\d+$", match[0]):  # digits right behind Han characters
            if ord(match[0][tail.start() - 1]) <= 0x2E80:
                break
            start = match.start() + tail.start()
            n_digits, n_groups = n_digits + len(tail[0]), n_groups + 1
        elif match[0] in _NUMBER_WORDS:
            start = match.start()
            n_digits, n_groups = n_digits + 1, n_groups + 1
        else:
            break
        end = start
    return n_digits, n_groups, text[:end]
