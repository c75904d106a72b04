"""Where a text's phonemes are cut before they are made into sound. Pure.

Kokoro makes a clause in one inference, on one core about as long as it sounds. Cut at marks, the first sound comes after the
first clause and another conversation's clause may go in between. Short clauses stick together: alone they sound clipped.
"""

from __future__ import annotations

import re

_FIRST_SIGNS, _NEXT_SIGNS = 8, 60  # shortest clause ("həlˈoʊ, "): the first one is waited for, later ones sound better long
_MARK = re.compile(r"[.!?;:,—…]+[\"”)]*\s*")
_LONG_PAUSES = frozenset(".!?…")
SENTENCE_PAUSE_MS, CLAUSE_PAUSE_MS = 250, 90  # the model's own silence at an end is trimmed, and this put in its place


def split(phonemes: str, longest: int) -> list[str]:
    """Clauses, each with its mark; joined they are the text. None is longer than `longest` signs."""
    clauses: list[str] = []
    start = 0
    for mark in _MARK.finditer(phonemes):
        shortest = _NEXT_SIGNS if clauses else _FIRST_SIGNS
        if mark.end() - start >= shortest and len(phonemes) - mark.end() >= _FIRST_SIGNS:
            clauses.append(phonemes[start : mark.end()])
            start = mark.end()
    clauses.append(phonemes[start:])
    return [part for clause in clauses for part in _shorten(clause, longest)]


def pause_ms(clause: str) -> int:
    """Silence after a clause that others follow."""
    mark = clause.rstrip(' "”)')[-1:]
    if mark in _LONG_PAUSES:
        return SENTENCE_PAUSE_MS
    return CLAUSE_PAUSE_MS if mark and not mark.isalnum() and mark in ";:,—" else 0


def _shorten(clause: str, longest: int) -> list[str]:
    """Without marks it is cut at the last space that fits, else anywhere."""
    parts = []
    while len(clause) > longest:
        at = clause.rfind(" ", 1, longest) + 1 or longest
        parts.append(clause[:at])
        clause = clause[at:]
    return [*parts, clause]
