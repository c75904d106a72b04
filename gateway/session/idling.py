"""A silence behind a reply: where nobody speaks for the session's `idle_timeout_ms`, the assistant speaks again.

Counts from the moment at which the reply was heard to its end, on the client's playout or on its clock. It happens once: the reply that
comes of it is not followed by another one until somebody has spoken or written, so that an empty room is not talked to all night.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.errors import StrettoError
from gateway.events import SilenceTimedOut, TurnStarted
from gateway.listener import Listener
from gateway.session.items import new_item_id
from gateway.session.refusals import take_turn
from gateway.turn import Parts, Turn
from gateway.turn_state import Event, State

if TYPE_CHECKING:
    from gateway.session.session import Session


class Idling:
    """One timer. Changed on the loop, without waiting."""

    def __init__(self, session: Session, listener: Listener | None, parts: Parts) -> None:
        self._session, self._listener, self._parts = session, listener, parts
        self._is_armed = False
        self._from_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._own: Turn | None = None  # the reply that a silence has brought

    def reply_over(self, turn: Turn) -> None:
        """The floor's reply was heard to its end (or failed)."""
        self._is_armed = turn is not self._own
        self.wait()

    def turn_began(self) -> None:
        """Something else happens than silence."""
        if self._session.state is not State.LISTENING:
            self._is_armed = False
            self.pause()

    def pause(self) -> None:
        """Somebody speaks, or so it seems."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def wait(self) -> None:
        """Nobody speaks (any more): begin to count, where the session wants that."""
        self.pause()
        listener, timeout_ms = self._listener, self._timeout_ms
        if self._is_armed and listener is not None and timeout_ms is not None and self._session.state is State.LISTENING:
            self._from_ms = listener.now_ms
            self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._on_timeout)

    @property
    def _timeout_ms(self) -> int | None:
        """What the session wants; nothing where its client ends utterances, or asks for replies itself."""
        profile = self._session.profile
        return profile.endpointing.idle_timeout_ms if profile.turn_detection == "auto" and profile.auto_reply else None

    def _on_timeout(self) -> None:
        self._timer = None
        session, listener = self._session, self._listener
        if listener is None or listener.is_open or listener.is_reading or session.state is not State.LISTENING:
            return
        if session.attachment is None or self._timeout_ms is None:
            return
        self._is_armed = False
        try:
            take_turn(session, self._parts)
        except StrettoError:
            return  # nobody asked; whose quota is used up is not told so for their silence
        item = session.conversation.add_user(self._parts.settings.hearing.silence_text, new_item_id())
        session.outbox.put(SilenceTimedOut(item_id=item.item_id, from_ms=self._from_ms, to_ms=max(self._from_ms, listener.now_ms)))
        session.apply(Event.COMMITTED, "speech")
        self._own = session.begin(session.plan(session.profile), TurnStarted(turn=0, item_id=item.item_id))
