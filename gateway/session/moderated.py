"""What a refused turn leaves behind: the words go out of the conversation, and the configured phrase is said in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gateway.events import ItemDeleted, TurnStarted
from gateway.turn import Parts, Turn, newest_words
from gateway.turn_state import Event, State

if TYPE_CHECKING:
    from gateway.session.session import Session


def after_refusal(session: Session, parts: Parts, turn: Turn) -> None:
    """Nothing of it is told to the model again. The phrase is a turn of its own; out-of-band replies have none."""
    session.conversation.drop_calls(turn)
    if not turn.plan.has_floor:
        return
    if not turn.is_sent:  # it was the user's words
        _forget(session, newest_words(turn.plan))
    phrase = parts.settings.moderation.phrase
    if phrase and session.state is State.LISTENING and not session.is_draining:
        session.apply(Event.REPLY_REQUESTED)
        session.begin(structs.replace(session.plan(session.profile), say=phrase), TurnStarted(turn=0))


def _forget(session: Session, words: str) -> None:
    found = [item.item_id for item in session.history if item.role == "user" and item.kind == "message" and item.text == words]
    if found:
        session.history.delete(found[-1])
        session.outbox.put(ItemDeleted(item_id=found[-1]))
