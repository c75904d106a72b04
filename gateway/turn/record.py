"""What became of a turn, for those who keep books: moments, counts, ids and names, never content."""

from __future__ import annotations

from typing import Literal, Protocol

from msgspec import Struct, structs

from engine.api import Usage
from gateway.events import InterruptReason, Timeline, TurnStatus
from gateway.metrics import InputKind
from gateway.speaker import SegmentRecord

Ending = TurnStatus | Literal["dropped"]
"""`dropped`: a draft that was thrown away, or a turn whose session ended under it."""


class Caller(Struct, frozen=True, kw_only=True):
    """Who a turn is for. `key`: which key opened the session, by its name; `user`: as the client said; `traceparent`: W3C's header."""

    key: str = ""
    user: str = ""
    traceparent: str = ""


class Spoken(Struct, frozen=True, kw_only=True):
    """The moments of the utterance that a turn answers: speech begins, ends, is taken for ended, and is text."""

    began_s: float
    ended_s: float
    decided_s: float
    text_s: float


class TurnRecord(Struct, frozen=True, kw_only=True):
    """Moments in seconds of the loop's clock.

    `started_s`: the commit or end of speech, from which `timeline` counts; `asked_s`: the model was asked (for a draft before that).
    `draft`: which one of its session it began as, 0 for none. `stopped_by`: why it was interrupted. `error`: its code, where it failed.
    """

    session_id: str
    turn: int
    status: Ending
    caller: Caller
    input: InputKind
    output: Literal["audio", "text"]
    language: str
    voice: str
    draft: int
    has_floor: bool
    started_s: float
    asked_s: float
    ended_s: float
    first_delta_s: float | None
    generated_s: float | None
    timeline: Timeline
    usage: Usage
    n_characters: int
    n_segments: int
    audio_ms: int
    heard_ms: int
    stopped_by: InterruptReason | None = None
    error: str | None = None
    spoken: Spoken | None = None
    segments: tuple[SegmentRecord, ...] = ()

    def logged(self) -> dict[str, object]:
        """The fields of the turn's line in the log."""
        return {
            "session_id": self.session_id,
            "turn_id": self.turn,
            "status": self.status,
            "n_segments": self.n_segments,
            "n_characters": self.n_characters,
            "audio_ms": self.audio_ms,
            "heard_ms": self.heard_ms,
            "output_tokens": self.usage.output_tokens,
            "cached_tokens": self.usage.cached_tokens,
            **structs.asdict(self.timeline),
        }


class TurnWatcher(Protocol):
    """Is told what turns come to. Returns at once and never raises: it runs between a listener's frames."""

    def turn_stopped(self, session_id: str, turn: int, caller: Caller) -> None:
        """A reply is interrupted; its record follows, perhaps after the one of the turn that interrupted it."""

    def turn_ended(self, record: TurnRecord) -> None:
        """Exactly one for every turn and every draft."""
