"""Spoken text with its way back to the written text.

Decides nothing about language: it makes edits, and turns an offset in one text into an offset in the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Edit:
    """Written characters `start` to `end` are said as `spoken`."""

    start: int
    end: int
    spoken: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a voice gets for one segment: `text`, "" when nothing of it can be said.

    Offsets count code points and never go backward. A replaced stretch is said only when its last spoken character is: half of
    "twenty-nine dollars" is not yet `$29`.
    """

    text: str
    _written: tuple[int, ...] = field(default=(0,), repr=False)  # for each boundary in `text`, the written text said up to there

    def written_offset(self, spoken_offset: int) -> int:
        """How much of the written text is said when `spoken_offset` characters of the spoken text are."""
        if spoken_offset <= 0 or not self.text:
            return 0
        return self._written[min(spoken_offset, len(self.text))]

    def spoken_offset(self, written_offset: int) -> int:
        """The least spoken offset at which the written text up to `written_offset` is said."""
        return 0 if written_offset <= 0 else min(bisect_left(self._written, written_offset), len(self.text))


def speak(text: str, edits: Iterable[Edit]) -> Spoken:
    """The text with the edits made; edits are in order and do not overlap."""
    out: list[str] = []
    written: list[int] = []
    at = 0
    for edit in edits:
        out += [text[at : edit.start], edit.spoken]
        written += range(at, edit.start)
        written += [edit.start] * len(edit.spoken)
        at = edit.end
    out.append(text[at:])
    written += range(at, len(text))
    return Spoken("".join(out), _from_start([*written, len(text)]))


def respeak(spoken: Spoken, edits: Iterable[Edit]) -> Spoken:
    """Spoken text with further edits, offsets in it, still leading back to the first written text."""
    last = speak(spoken.text, edits)
    return Spoken(last.text, _from_start([*map(spoken.written_offset, last._written[:-1]), spoken._written[-1]]))


def _from_start(written: list[int]) -> tuple[int, ...]:
    # Before anything is said nothing is heard, not even marks in front of the first word.
    return (0, *written[1:])
