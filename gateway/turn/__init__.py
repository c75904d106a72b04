"""One turn: from the commit to the last sample heard. `turn` lives it, `asking` calls the model, `wording` sends its text."""

from __future__ import annotations

from gateway.turn.plan import Owner, Parts, Plan, Progress, SentCall
from gateway.turn.record import Caller, Spoken, TurnRecord, TurnWatcher
from gateway.turn.review import Kind, Moderator, Subject, newest_words
from gateway.turn.turn import Turn

__all__ = [
    "Caller", "Kind", "Moderator", "Owner", "Parts", "Plan", "Progress", "SentCall", "Spoken", "Subject", "Turn", "TurnRecord",
    "TurnWatcher", "newest_words",
]  # fmt: skip
