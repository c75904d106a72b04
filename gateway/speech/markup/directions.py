"""Stage directions: what a character does, not says. `*sighs*`, `（轻笑）`, `(laughs softly)`.

Decides by closed lists of words and by shape: the whole content has to be an action, and where the word could be plain
emphasis (`a *smile*`) it has to stand where no sentence goes on. Everything else in stars or parentheses is text.
"""

from __future__ import annotations

import re

from gateway.speech.markup.direction_words import (
    ADVERBS,
    ARTICLES,
    BASE,
    BEGINNINGS,
    CHINESE,
    CHINESE_FEELING,
    CHINESE_FIRST,
    FIRST,
    GERUNDS,
    MANNER,
    NOUNS,
    PREPOSITIONS,
    PRONOUNS,
    REST,
    SUBJECTS,
    THIRD,
)
from gateway.speech.markup.pieces import Found, Place, Verdict

CLOSERS = {"*": "*", "_": "_", "(": ")）", "（": "）)", "[": "]", "【": "】"}
_LIMIT = 64  # characters; the longest action that models write in stars
_HAN_LIMIT = 16
_HAN = re.compile("[\u4e00-\u9fff]")
_CONTENT = re.compile(r"[A-Za-z\u4e00-\u9fff '’,，、.…!~～-]*")
_WORD = re.compile(r"[a-z'’-]+")
_STANDS_AFTER = frozenset("\n.!?…,;:—–-。！？，；：、~～\"”’'」』)）】]*")


def read_direction(place: Place) -> Verdict:
    """A stage direction that opens here."""
    text, at, opener = place.text, place.at, place.text[place.at]
    if opener in "*_":
        if place.before.endswith(opener) or (opener == "_" and place.before[-1:].isalnum()):
            return None
        run = 2 if text[at + 1 : at + 2] == opener else 1
    else:
        run = 1
    start = at + run
    content = _CONTENT.match(text, start, start + _LIMIT)
    end = content.end() if content else start
    if end == len(text) and not place.is_final:
        return place.need() if end - start < _LIMIT and _may_be(text[start:end]) else None
    if not text[start:end] or text[start] == " " or not _closed(text, end, opener, run):
        return None
    if end + run > len(text):
        return place.need()
    if not _is_direction(text[start:end].strip(), opener, place.before):
        return None
    return Found(end + run - at, "hidden")


def _closed(text: str, end: int, opener: str, run: int) -> bool:
    """Whether the closer, or as much of it as has come, stands here."""
    mark = text[end : end + run]
    return bool(mark) and all(ch in CLOSERS[opener] for ch in mark)


def _may_be(content: str) -> bool:
    """Whether more text could still make it a direction; most emphasis is let go at its first word."""
    if not content:
        return True
    if content[0] == " ":
        return False
    if _HAN.match(content):
        return len(content) <= _HAN_LIMIT and content[0] in CHINESE_FIRST
    first, space, _ = content.lower().partition(" ")
    first = first.strip(",.…!~")
    return first in (FIRST if space else BEGINNINGS)


def _is_direction(content: str, opener: str, before: str) -> bool:
    ahead = before.rstrip(" \t")
    stands = not ahead or ahead[-1] in _STANDS_AFTER
    if _HAN.search(content):
        bare = content.strip("。.！!～~…，, ")
        return bool(CHINESE.fullmatch(bare)) or (stands and opener not in "[【" and bool(CHINESE_FEELING.fullmatch(bare)))
    words = _WORD.findall(content.lower())
    return bool(words) and _is_action(words, opener, stands, before)


def _is_action(words: list[str], opener: str, stands: bool, before: str) -> bool:
    starred = opener in "*_"
    if starred and stands and words[0] in PRONOUNS and len(words) > 1:
        words = words[1:]
    while len(words) > 1 and words[0] in ADVERBS:
        words = words[1:]
    head, rest = words[0], words[1:]
    if head in THIRD:
        if starred and stands:
            return True
        return _is_rest(rest) and not (_last_word(before) in SUBJECTS and not stands)
    if not stands:
        return False
    if head in BASE or head in GERUNDS:
        return _is_rest(rest)
    if head in ARTICLES or head in PREPOSITIONS:
        return len(words) <= 6 and words[-1] in NOUNS
    return head in MANNER and not rest and not starred


def _is_rest(words: list[str]) -> bool:
    return all(word in REST or word.endswith("ly") or word in THIRD or word in GERUNDS or word in NOUNS for word in words)


def _last_word(before: str) -> str:
    words = _WORD.findall(before.lower())
    return words[-1] if words else ""
