"""A draft reply for an utterance that may be finished: when to begin one, when it may be kept, when it is thrown away.

Pure. A draft costs tokens and engine time that somebody else may need, so it begins only where the words look finished and the
engine has headroom; it is kept only where the final text says the same as the text it answers.
"""

from __future__ import annotations

import unicodedata
from typing import Literal

from gateway.config import SpeculationSettings
from gateway.endpointing import simplified

Outcome = Literal["committed", "changed", "resumed", "cancelled", "failed", "no_headroom"]
"""What became of a draft: kept; the text became another one; the speaker went on; typed over or cancelled; its engine failed; not begun."""

Step = Literal["start", "keep", "replace", "drop", "skip"]

_INSIDE_NUMBERS = frozenset(".,:-/")


def normalized(text: str) -> str:
    """The text as far as two readings of the same speech agree: no case, marks (but in numbers), spaces, traditional characters."""
    text = simplified(unicodedata.normalize("NFKC", text).casefold())
    last = len(text) - 1
    return "".join(char for place, char in enumerate(text) if char.isalnum() or (0 < place < last and _is_inside_number(text, place)))


def is_same(one: str, two: str) -> bool:
    """Whether a reply to one text answers the other as well."""
    return normalized(one) == normalized(two)


class Headroom:
    """Replies and drafts that the model works on now. One for all sessions of a process."""

    def __init__(self) -> None:
        self.n_replies = 0
        self.n_drafts = 0

    def count(self, *, is_draft: bool, by: int) -> None:
        """A request to the model begins (1) or is over (-1)."""
        if is_draft:
            self.n_drafts += by
        else:
            self.n_replies += by

    def admits_draft(self, settings: SpeculationSettings) -> bool:
        """Whether one more draft leaves the engine to those who are really waited for."""
        return self.n_drafts < settings.max_drafts and self.n_replies + self.n_drafts < settings.max_replies


class Speculation:
    """The draft of one utterance. Tell it what is known; it says what to do. Holds no draft itself."""

    def __init__(self, settings: SpeculationSettings) -> None:
        self._settings = settings
        self._answers: str | None = None
        self._n_started = 0

    @property
    def is_held(self) -> bool:
        """Whether there is a draft."""
        return self._answers is not None

    def on_likely_end(self, text: str, *, looks_finished: bool, has_headroom: bool) -> Step:
        """The speaker may have finished with this text (or a better reading of it has come). Call `began` when the draft is begun."""
        if self._answers is not None and is_same(self._answers, text):
            return "keep"
        is_wanted = self._settings.enabled and looks_finished and bool(normalized(text)) and self._n_started <= self._settings.max_restarts
        if not is_wanted or not has_headroom:
            return "drop" if self.is_held else "skip"
        return "replace" if self.is_held else "start"

    def began(self, text: str) -> None:
        """A draft that answers this text is on its way."""
        self._answers = text
        self._n_started += 1

    def on_final(self, text: str) -> Literal["commit", "drop", "none"]:
        """The utterance is final: keep the draft, throw it away, or there is none."""
        answers, self._answers = self._answers, None
        if answers is None:
            return "none"
        return "commit" if is_same(answers, text) else "drop"

    def forget(self) -> bool:
        """The speaker goes on, or the draft is gone; whether there was one."""
        was_held, self._answers = self.is_held, None
        return was_held


def _is_inside_number(text: str, place: int) -> bool:
    return text[place] in _INSIDE_NUMBERS and text[place - 1].isdigit() and text[place + 1].isdigit()
