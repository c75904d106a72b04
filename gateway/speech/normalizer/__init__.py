"""Written text of one segment -> what a voice is given.

Rules look at the written text and claim stretches of it, the most specific first; clean-up takes what nobody claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.speech.normalizer.spoken import Edit, Spoken, apply, silent
from gateway.speech.normalizer.symbols import clean, is_speakable

__all__ = ["AtomSpan", "Spoken", "normalize"]


@dataclass(frozen=True, slots=True)
class AtomSpan:
    """Written characters `start` to `end` are an atom of markup; `spoken` is said instead, None for the text itself."""

    start: int
    end: int
    spoken: str | None


def normalize(text: str, language: str, *, atoms: Sequence[AtomSpan] = (), voice_reads: frozenset[str] = frozenset()) -> Spoken:
    """The spoken form of one segment, "" when nothing of it can be said.

    **atoms**: in order, offsets in `text`. **voice_reads**: what the voice says well by itself, from `VOICE_READS`; it stays as written.
    """
    edits = [Edit(atom.start, atom.end, _say(atom.spoken)) for atom in atoms if atom.spoken is not None]
    taken = [(edit.start, edit.end) for edit in edits]
    edits += [edit for edit in clean(text) if all(edit.end <= start or edit.start >= end for start, end in taken)]
    spoken = apply(text, sorted(edits, key=lambda edit: edit.start))
    return spoken if any(map(is_speakable, spoken.text)) else silent(text)


def _say(spoken: str) -> str:
    return apply(spoken, clean(spoken)).text
