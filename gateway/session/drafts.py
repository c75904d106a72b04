"""The draft reply of an unfinished utterance: made by the session like any turn, kept here until it is committed or dropped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from engine.api import Message
from gateway.endpointing import Reading, read
from gateway.session.refusals import turn_refusal
from gateway.speculation import Outcome, Speculation
from gateway.turn import Parts, Turn
from gateway.turn_state import Event

if TYPE_CHECKING:
    from gateway.session.session import Session


class Draft(Struct, frozen=True):
    """`text`: what it answers."""

    turn: Turn
    text: str
    task: asyncio.Task[None]


class Drafts:
    """One draft at a time. State changes go through the session's table, which calls `drop` back."""

    def __init__(self, session: Session, parts: Parts) -> None:
        self._session, self._parts = session, parts
        self._speculation = Speculation(parts.settings.speculation)
        self._held: Draft | None = None
        self._n_begun = 0
        self._dropped_as: Outcome = "cancelled"

    @property
    def is_held(self) -> bool:
        """Whether there is a draft."""
        return self._held is not None

    def new_utterance(self) -> None:
        """Another one begins: it may have drafts of its own."""
        self._speculation = Speculation(self._parts.settings.speculation)

    def on_likely_end(self, text: str, ended_s: float) -> None:
        """The speaker may have finished with this text: begin a draft, keep it, or begin another one."""
        settings = self._parts.settings.speculation
        looks_finished = read(text) in (Reading.COMPLETE, Reading.OPEN)
        has_headroom = self._parts.headroom.admits_draft(settings) and not self._parts.pressure.is_eased
        if turn_refusal(self._session, self._parts) is not None:  # nobody would ever hear it
            self.give_up("cancelled")
            return
        step = self._speculation.on_likely_end(text, looks_finished=looks_finished, has_headroom=has_headroom)
        if step == "skip" and settings.enabled and looks_finished and not has_headroom:
            self._parts.metrics.listening.speculation.labels("no_headroom").inc()
        if step in ("replace", "drop"):
            self.give_up("changed")
        if step in ("start", "replace"):
            self._begin(text, ended_s)

    def take(self, text: str) -> Draft | None:
        """The utterance is final: the draft that answers it, or None; any other one is dropped."""
        is_same = self._speculation.on_final(text) == "commit"
        held = self._held
        if held is None or not is_same or held.turn.number != self._session.n_turns + 1:
            self.give_up("changed")
            return None
        self._held = None
        self._parts.metrics.listening.speculation.labels("committed").inc()
        return held

    def give_up(self, outcome: Outcome, event: Event = Event.CANCELLED) -> None:
        """Drop the draft, if there is one, by way of the floor's table."""
        if self._held is not None:
            self._dropped_as = outcome
            self._session.apply(event)
            self._dropped_as = "cancelled"

    def lost(self, turn: Turn) -> bool:
        """A turn has failed: whether it was the draft, which nobody misses."""
        if self._held is None or turn is not self._held.turn:
            return False
        self.give_up("failed", Event.FAILED)
        return True

    def drop(self) -> None:
        """The floor's table says: the draft is gone; or the session ends."""
        held, self._held = self._held, None
        self._speculation.forget()
        if held is not None:
            held.turn.discard()
            held.task.cancel()
            self._parts.metrics.listening.speculation.labels(self._dropped_as).inc()
            self._parts.metrics.listening.speculation_wasted.inc(held.turn.n_tokens)

    def _begin(self, text: str, ended_s: float) -> None:
        session = self._session
        self._n_begun += 1
        plan = session.plan(session.profile)
        messages = (*plan.messages, Message(role="user", text=text))
        turn, task = session.draft(structs.replace(plan, messages=messages, input="speech", started_s=ended_s, draft=self._n_begun))
        self._held = Draft(turn, text, task)
        self._speculation.began(text)
        session.apply(Event.DRAFT_STARTED)
