"""What a turn is told: the session's settings, the conversation so far, and the server's bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.config import Settings
from gateway.events import ItemInfo, RequestReply, UpdateSession
from gateway.history import Budget
from gateway.profile import Profile
from gateway.session.items import new_item_id
from gateway.turn import Caller, Parts, Plan

if TYPE_CHECKING:
    from gateway.session.session import Session

CLOCK_LEAD_MS = 2000  # clients that do not report playout buffer for themselves


def changed(profile: Profile, update: UpdateSession | RequestReply, parts: Parts) -> Profile:
    """The settings with a client's wishes, for the session or for one reply. Raises as `Profile.updated`."""
    return profile.updated(update, parts.voices, parts.encoding.rates() if parts.encoding is not None else {})


def budget(settings: Settings) -> Budget:
    """What the prompt of a conversation may have."""
    history = settings.history
    return Budget(tokens=settings.session.context_tokens, trim_at=history.trim_at, trim_to=history.trim_to)


def planned(session: Session, parts: Parts, profile: Profile, given: tuple[ItemInfo, ...] | None, *, has_floor: bool) -> Plan:
    """The plan of the session's next turn; `given` replaces the conversation as its context. Raises as `Conversation.context`."""
    settings, conversation = parts.settings, session.conversation
    own = settings.turn.max_tokens
    return Plan(
        number=session.n_turns + 1,
        session_id=session.session_id,
        reply_item_id=new_item_id(),
        language=profile.language,
        voice=profile.voice,
        output=profile.output,
        audio_out=profile.audio_out,
        speed=profile.speed,
        temperature=settings.turn.temperature if profile.temperature is None else profile.temperature,
        max_tokens=own if profile.max_tokens is None else min(own, profile.max_tokens),
        lead_ms=max(CLOCK_LEAD_MS, settings.session.lead_ms) if profile.is_clocked else settings.session.lead_ms,
        heard_wait_s=0 if profile.is_clocked else settings.turn.heard_wait_s,
        messages=conversation.context(given, profile, budget(settings), has_floor=has_floor),
        tools=profile.offered_tools(),
        tool_flow=profile.tool_flow,
        kept=conversation.history.kept,
        has_floor=has_floor,
        notice=settings.label.notice_in(profile.language)
        if has_floor and profile.output == "audio" and not conversation.is_labelled
        else "",
        cache_salt=profile.rights.cache_salt,
        caller=Caller(
            key=profile.rights.account,
            user=profile.rights.user or profile.user,
            traceparent=session.attachment.traceparent if session.attachment is not None else "",
        ),
    )
