"""Where a long sentence is cut before it is made into sound. Pure.

Piper makes a sentence in one inference, about 4 ms for each phoneme on one core. Cut at a comma the first sound comes after the first
clause, and another conversation's clause may go in between. The voice lets its tone hang at the comma, as a speaker does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

FIRST_PHONEMES = 8  # "Hello, ": half a second of speech, made in 50 ms: enough to play while the next clause is made
NEXT_PHONEMES = 48  # later there is time, and long clauses sound better
_BREAKS = frozenset(",;:")


def split_clauses(phonemes: Sequence[str], is_first: bool) -> Iterator[list[str]]:
    """Parts of one sentence, each but the last ending in a clause mark and its space; joined they are all of it."""
    part: list[str] = []
    shortest = FIRST_PHONEMES if is_first else NEXT_PHONEMES
    for index, phoneme in enumerate(phonemes):
        part.append(phoneme)
        is_break = phoneme == " " and len(part) > 1 and part[-2] in _BREAKS
        if is_break and len(part) >= shortest and len(phonemes) - index > FIRST_PHONEMES:
            yield part
            part, shortest = [], NEXT_PHONEMES
    if part:
        yield part
