"""Spoken text with its way back to the written text.

Decides nothing about language: it holds the parts that tile both texts, and turns an offset in one into an offset in the other.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_Parts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Edit:
    """Written characters `start` to `end` are said as `spoken`."""

    start: int
    end: int
    spoken: str


@dataclass(frozen=True, slots=True)
class Spoken:
    """What a voice gets for one segment: `text`, "" when nothing of it can be said.

    Offsets count code points. Both maps never go backward; inside a replaced stretch they answer with its start, because
    half of "twenty-nine dollars" is not yet `$29`.
    """

    text: str
    _written: _Parts = field(default=(0,), repr=False)  # where part i starts in the written text; the last entry is its length
    _spoken: _Parts = field(default=(0,), repr=False)

    def written_offset(self, spoken_offset: int) -> int:
        """The written offset up to which the text was said when `spoken_offset` characters are said."""
        return _across(self._spoken, self._written, spoken_offset)

    def spoken_offset(self, written_offset: int) -> int:
        """The spoken offset at which the written text up to `written_offset` has been said."""
        return _across(self._written, self._spoken, written_offset)


def _across(source: Sequence[int], target: Sequence[int], offset: int) -> int:
    if offset <= 0:
        return 0
    if offset >= source[-1]:
        return target[-1]
    part = bisect_right(source, offset) - 1
    # Characters that have no counterpart end where they begin: take the first part that starts here.
    while part and source[part - 1] == offset:
        part -= 1
    length, other = source[part + 1] - source[part], target[part + 1] - target[part]
    return target[part] + (offset - source[part] if length == other else 0)


def apply(text: str, edits: Iterable[Edit]) -> Spoken:
    """The text with the edits made; edits are in order and do not overlap."""
    out: list[str] = []
    written, spoken, at, said = [0], [0], 0, 0
    for edit in edits:
        if edit.start > at:
            out.append(text[at : edit.start])
            said += edit.start - at
            written.append(edit.start)
            spoken.append(said)
        out.append(edit.spoken)
        said += len(edit.spoken)
        written.append(edit.end)
        spoken.append(said)
        at = edit.end
    if at < len(text):
        out.append(text[at:])
        written.append(len(text))
        spoken.append(said + len(text) - at)
    return Spoken("".join(out), tuple(written), tuple(spoken))


def silent(text: str) -> Spoken:
    """Nothing is said of this text."""
    return Spoken("", (0, len(text)), (0, 0))
