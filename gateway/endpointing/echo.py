"""Telling our own voice, come back through a microphone without echo cancellation, from a person's.

Pure. Compares words alone: what the recognizer made of the sound against what is being said. Fewer than three words are never an echo:
people answer with our last word ("tea or coffee?" "coffee"), and a reply that stops for an echo is mended sooner than a deaf one.
"""

from __future__ import annotations

import re
import unicodedata

from gateway.endpointing.script import simplified

_UNIT = re.compile(r"[\u2e80-\u2fff\u3005-\u3007\u3040-\ud7ff\uf900-\ufaff]|[^\W_]+(?:['’][^\W_]+)*")
_LIKE_OURS = 0.75  # of the heard words, in our order; recognizers mishear a fifth of an echo from a cheap speaker
_LAST_UNITS = 40  # about ten seconds of speech: what can still be in the room
_LAST_CHARACTERS = 1000  # what holds so many units in any language; the rest of a long reply would be taken apart for nothing
_FEWEST_UNITS = 3


def units(text: str) -> list[str]:
    """Words, and single Chinese characters, without marks, case and difference of script."""
    return [unit.replace("’", "'") for unit in _UNIT.findall(simplified(unicodedata.normalize("NFKC", text).casefold()))]


def is_echo(heard: str, said: str) -> bool:
    """Whether `heard` is made of our own words. `said`: caption text up to now, the newest last."""
    theirs = units(heard)
    if len(theirs) < _FEWEST_UNITS:
        return False
    ours = units(recent(said))[-_LAST_UNITS:]
    return _common(theirs, ours) >= _LIKE_OURS * len(theirs)


def recent(said: str) -> str:
    """The end of what was said, without the rest of a word that it would begin with."""
    if len(said) <= _LAST_CHARACTERS:
        return said
    end = said[-_LAST_CHARACTERS - 1 :]
    broken = _UNIT.match(end)
    return end[1 if broken is None else broken.end() :]


def _common(theirs: list[str], ours: list[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(ours) + 1)
    for their in theirs:
        above = 0
        for place, our in enumerate(ours, 1):
            above, row[place] = row[place], above + 1 if their == our else max(row[place], row[place - 1])
    return row[-1]
