"""What markup turns raw text into: pieces that tile it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from gateway.speech.emotion import Emotion

PieceKind = Literal["text", "atom", "hidden", "emotion", "break"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One stretch of raw text with its role.

    **text** is the caption text, "" for hidden, emotion and break. **raw_start, raw_end** count code points of the
    raw text; pieces follow each other without gap or overlap, a break covers nothing. **spoken** is for atoms: said
    instead of the text, "" for nothing, None for the text itself.
    """

    kind: PieceKind
    text: str
    raw_start: int
    raw_end: int
    spoken: str | None = None
    emotion: Emotion | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """A block that swallows everything up to its end: reasoning until a literal, code until its fence, an address."""

    kind: Literal["reasoning", "fence", "address"]
    end: str


@dataclass(frozen=True, slots=True)
class Found:
    """A rule recognised `length` characters."""

    length: int
    kind: PieceKind
    spoken: str | None = None
    emotion: Emotion | None = None
    closes_emotion: bool = False
    is_break: bool = False
    enter: Mode | None = None


@dataclass(frozen=True, slots=True)
class Need:
    """A rule cannot decide yet.

    Asking again is useless until a character that matches **stop** arrives (None: any) or the held text has **limit** characters.
    """

    stop: re.Pattern[str] | None = None
    limit: int = 1


Verdict = Found | Need | None
NEED = Need()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rule looks: `text[at:]` is the future, `before` the last caption characters, `is_final` that no more comes."""

    text: str
    at: int
    before: str
    is_final: bool

    @property
    def at_line_start(self) -> bool:
        return self.before[self.before.rfind("\n") + 1 :].isspace() or self.before.endswith("\n")

    def need(self, stop: re.Pattern[str] | None = None, limit: int = 1) -> Need | None:
        """Wait for more, or give up where no more comes."""
        return None if self.is_final else Need(stop, limit)

    def starts(self, literal: str) -> bool | None:
        """Whether the literal stands here in any case; None when more text is needed to say."""
        have = self.text[self.at : self.at + len(literal)].lower()
        if have == literal:
            return True
        return None if not self.is_final and literal.startswith(have) else False
