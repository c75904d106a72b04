"""What the listener knows of one utterance, and what it tells the session."""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

from msgspec import Struct

from gateway.endpointing import Reading, read
from gateway.errors import StrettoError

COVERED_MS = 120.0  # less than a syllable is missing: detectors hold on to a voice for so long after its end


class Utterance(Struct, frozen=True, kw_only=True):
    """A finished one. `text` may be empty: nobody spoke. `ended_s`: the end of speech on the loop's clock; `at_ms` on the client's.

    `is_whole` False: a part of a long one could not be read in time.
    """

    number: int
    text: str
    language: str | None
    at_ms: int
    ended_s: float
    is_whole: bool = True


class Owner(Protocol):
    """The session, as the listener sees it. Everything returns at once."""

    @property
    def is_deaf(self) -> bool:
        """Whether what is said now is not meant to be heard."""

    @property
    def awaits_words(self) -> bool:
        """Whether a reply is held, or would be stopped, until it is clear that words are said."""

    def on_speech_started(self, number: int, at_ms: int, started_s: float) -> None:
        """Somebody speaks."""

    def on_text(self, number: int, text: str) -> None:
        """What is understood so far."""

    def on_likely_end(self, number: int, text: str, *, ended_s: float) -> None:
        """All that was said so far is this text, and nothing follows now. Comes again with a better text."""

    def on_speech_resumed(self, number: int) -> None:
        """It was only a pause."""

    def on_speech_ended(self, number: int, at_ms: int) -> None:
        """The utterance is over; its text follows by `on_utterance` (or `on_nothing`)."""

    def on_utterance(self, utterance: Utterance) -> None:
        """The final text."""

    def on_nothing(self, number: int, why: Literal["noise", "cleared", "failed", "crowded"], error: StrettoError | None = None) -> None:
        """No text will come of it."""


class Piece:
    """What is read in one go: a whole utterance, or of a long one the part between two pauses. Times are on the stream's clock."""

    def __init__(self, number: int, from_ms: float) -> None:
        self.number = number
        self.from_ms = from_ms
        self.partial = ""
        self.read_until_ms = from_ms  # what was asked for in the newest partial reading
        self.is_read = False  # a partial reading is on its way
        self.closing: asyncio.Task[None] | None = None
        self.text: tuple[str, str | None] | None = None  # as it stands if nothing follows, and its language
        self.pcm = b""  # once it is over, and until its text is there

    def covers(self, spoken_until_ms: float) -> bool:
        """Whether the partial text holds all that was said."""
        return bool(self.partial) and self.read_until_ms >= spoken_until_ms - COVERED_MS


class OpenUtterance:
    """One that is being spoken, or whose final text is awaited. Times ending in `_ms` are on the stream's clock, but for `at_ms`."""

    def __init__(self, number: int, from_ms: float) -> None:
        self.number = number
        self.from_ms = from_ms
        self.earlier: list[Piece] = []
        self.piece = Piece(0, from_ms)
        self.is_paused = False
        self.pause = 0  # which pause this is; readings and scores of an earlier one are stale
        self.paused_ms = self.likely_ended_s = 0.0  # when the newest pause began
        self.at_ms = 0
        self.ended_s = 0.0
        self.tasks: set[asyncio.Task[None]] = set()

    def begin_piece(self, from_ms: float, pcm: bytes) -> None:
        """What was said up to the pause is a piece of its own; `pcm` is its audio."""
        self.piece.pcm = pcm if self.piece.text is None else b""
        self.earlier.append(self.piece)
        self.piece = Piece(self.piece.number + 1, from_ms)

    @property
    def is_whole(self) -> bool:
        """Whether each piece was read."""
        return all(piece.text is not None for piece in (*self.earlier, self.piece))

    def text_with(self, text: str) -> str:
        """The text of the last piece behind those of the earlier ones, as far as they are known."""
        return joined([piece.text[0] for piece in self.earlier if piece.text is not None] + [text])


def joined(texts: list[str]) -> str:
    """Pieces of one utterance as one text. A stop that the recognizer put behind half a sentence goes."""
    whole = ""
    for text in filter(None, texts):
        if whole and read(whole) in (Reading.HESITATING, Reading.DICTATING):
            whole = whole.rstrip(" .。…,，") or whole
        glue = "" if not whole or ord(text[0]) > 0x2E80 else " "
        whole += glue + text
    return whole
