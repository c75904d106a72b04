"""A session as another process needs it to go on: what was said and heard, and the settings; no audio, no frames.

Pure in what it decides: taken from a live session between two steps of the loop, small and bounded. The replies that were on their way
are named, because whoever takes the session over has to end them.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from gateway.auth import Rights
from gateway.errors import ReplyLost
from gateway.events import Heard, StartSession, Timeline, TurnDone
from gateway.history import Item
from gateway.profile import Profile
from gateway.session.frames import error_frame
from gateway.session.granting import grant
from gateway.session.session import Session
from gateway.turn import Parts

ITEMS_BYTES = 128 * 1024  # of items, the newest ones: ten times what a prompt of 3,000 tokens holds
ITEM_BYTES = 100  # what an item weighs besides its text, about
AHEAD = 4096  # frames that may have left since the last save; a second of speech has about 50

Mark = tuple[object, ...]


class OpenTurn(Struct, frozen=True, kw_only=True):
    """A reply that was on its way, and how much of it had been heard. `has_sound` False: it came as text."""

    turn: int
    has_sound: bool
    heard_ms: int
    heard_text: str


class SavedSession(Struct, frozen=True, kw_only=True):
    """`start` lacks what `profile` and `items` hold. `last_seq`: the newest frame at the time of saving."""

    session_id: str
    start: StartSession
    profile: Profile
    items: tuple[Item, ...] = ()
    earlier: str = ""
    open_turns: tuple[OpenTurn, ...] = ()
    n_turns: int = 0
    last_seq: int = 0
    answered: tuple[str, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SavedSession)


def mark(session: Session) -> Mark:
    """Changes whenever something that is worth saving has changed; of a reply that sounds, once a second. Cheap."""
    heard = tuple((turn.number, turn.heard_ms() // 1000) for turn in session.live_turns)
    is_attached = session.attachment is not None
    history = session.history
    return (
        history.n_changes,
        history.earlier,
        session.n_turns,
        session.profile,
        session.audio_in,
        session.answered.n_changes,
        heard,
        is_attached,
    )


def encode(session: Session) -> bytes:
    """The session as bytes, at most a few times `ITEMS_BYTES`."""
    live = [turn for turn in session.live_turns if not turn.is_draft]
    lean = structs.replace(
        session.start,
        id=None,
        instructions=None,
        history=(),
        tools=(),
        resume=None,
        audio_in=session.audio_in,
        turn_detection=session.profile.turn_detection,
    )
    return _encoder.encode(
        SavedSession(
            session_id=session.session_id,
            start=lean,
            profile=session.profile,
            earlier=session.history.earlier,
            items=_newest(session.conversation.as_if_ended(live)),
            open_turns=tuple(
                OpenTurn(turn=t.number, has_sound=t.plan.output == "audio", heard_ms=t.heard_ms(), heard_text=t.heard_text()) for t in live
            ),
            n_turns=session.n_turns,
            last_seq=session.outbox.last_seq,
            answered=session.answered.ids(),
        )
    )


def decode(data: bytes) -> SavedSession:
    """What was saved. Raises `msgspec.MsgspecError` where another version of the gateway wrote something else."""
    return _decoder.decode(data)


def follows(saved: SavedSession, last_seq: int) -> bool:
    """Whether a client can have come as far as it says."""
    return 0 <= last_seq <= saved.last_seq + AHEAD


def restored(saved: SavedSession, parts: Parts, last_seq: int, rights: Rights) -> Session:
    """The session with its key's present rights, to be run here. Its first frames end the replies that were on their way (`failed`).

    Raises `UnknownPersona`.
    """
    session = Session(saved.session_id, saved.profile, saved.start, parts)
    for item in saved.items:
        session.history.add(item)
    session.history.earlier = saved.earlier
    session.n_turns = saved.n_turns
    for message_id in saved.answered:
        session.answered.is_new(message_id)
    session.outbox.go_on_after(last_seq)  # what left behind it never arrived
    grant(session, rights, parts.settings)
    for lost in saved.open_turns:
        session.outbox.put(error_frame(ReplyLost("The gateway that made this reply is gone; the rest of it is lost.", turn=lost.turn)))
        if lost.has_sound:
            session.outbox.put(Heard(turn=lost.turn, heard_ms=lost.heard_ms, heard_text=lost.heard_text))
        session.outbox.put(TurnDone(turn=lost.turn, status="failed", timeline=Timeline()))
    return session


def _newest(items: list[Item]) -> tuple[Item, ...]:
    """As many as fit, from the end."""
    left, first = ITEMS_BYTES, len(items)
    while first and (left := left - ITEM_BYTES - len(items[first - 1].text.encode("utf-8", "replace"))) >= 0:
        first -= 1
    return tuple(items[first:])
