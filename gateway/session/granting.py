"""What becomes of a conversation whose key may do less (or more) now than when it was opened: each resume brings the present rights.

What the client had put in by a right that is gone goes with it, and the client is told. A reply under way was begun with the rights of
then, and is finished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gateway.auth import Rights
from gateway.config import Settings
from gateway.events import ItemDeleted
from gateway.turn_state import Event, State

if TYPE_CHECKING:
    from gateway.session.session import Session


def grant(session: Session, rights: Rights, settings: Settings) -> None:
    """The session goes on with these rights. Raises `UnknownPersona` where their persona is configured no more."""
    before = session.profile
    session.profile = before.granted(rights, session.start.persona, settings)
    if structs.replace(session.profile, rights=before.rights) == before and rights.instructions >= before.rights.instructions:
        session.conversation.permit(may_instruct=rights.instructions)
        return
    if session.state is State.DRAFTING:
        session.apply(Event.CANCELLED)  # the draft was told what holds no more
    for item_id in session.conversation.permit(may_instruct=rights.instructions):
        session.outbox.put(ItemDeleted(item_id=item_id))
    session.outbox.put(session.profile.described())
