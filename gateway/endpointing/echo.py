"""Telling our own voice, come back through a microphone without echo cancellation, from a person's.

Pure. Compares words alone: what the recognizer made of the sound against what is being said. A person who repeats our last words
is taken for an echo; one word more and they are heard.
"""

from __future__ import annotations

import re
import unicodedata

_UNIT = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff]|[^\W_]+(?:['’][^\W_]+)*")
_LIKE_OURS = 0.75  # of the heard words, in our order; recognizers mishear a fifth of an echo from a cheap speaker
_LAST_UNITS = 40  # about ten seconds of speech: what can still be in the room
_LONE_UNITS = 4  # a single word must be among our last ones


def units(text: str) -> list[str]:
    """Words, and single Chinese characters, without marks and case."""
    return [unit.replace("’", "'") for unit in _UNIT.findall(unicodedata.normalize("NFKC", text).casefold())]


def is_echo(heard: str, said: str) -> bool:
    """Whether `heard` is made of our own words. `said`: caption text up to now, the newest last."""
    theirs, ours = units(heard), units(said)[-_LAST_UNITS:]
    if not theirs or not ours:
        return False
    if len(theirs) == 1:
        return theirs[0] in ours[-_LONE_UNITS:]
    if len(theirs) == 2:
        return any(ours[i : i + 2] == theirs for i in range(len(ours) - 1))
    return _common(theirs, ours) >= _LIKE_OURS * len(theirs)


def _common(theirs: list[str], ours: list[str]) -> int:
    """Length of the longest common subsequence."""
    row = [0] * (len(ours) + 1)
    for their in theirs:
        above = 0
        for place, our in enumerate(ours, 1):
            above, row[place] = row[place], above + 1 if their == our else max(row[place], row[place - 1])
    return row[-1]
