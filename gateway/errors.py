"""Every error that has a wire code, by blame.

`ClientError`: the peer broke the protocol. `EngineFailed`: a model failed. `Overloaded`: we refuse. Anything else is our
bug: it is logged with its trace and closes the socket with 1011. Codes and close codes are stable; messages are for people.

This table is also the close-code table of the protocol:
1003 wrong frame kind, 1008 policy, 1009 too big, 1011 our bug, 1013 overloaded,
4001 superseded, 4002 idle, 4003 slow reader, 4004 draining.
"""

from __future__ import annotations

from engine import api

CLOSE_WRONG_FRAME = 1003
CLOSE_POLICY = 1008
CLOSE_TOO_BIG = 1009
CLOSE_BUG = 1011
CLOSE_OVERLOADED = 1013
CLOSE_SUPERSEDED = 4001
CLOSE_IDLE = 4002
CLOSE_SLOW_READER = 4003
CLOSE_DRAINING = 4004


class StrettoError(Exception):
    """Base. `code` goes on the wire, `close` ends the connection when set, `retryable` says whether trying again helps."""

    code = "internal"
    close: int | None = None
    retryable = False
    http_status = 500
    reason = ""  # what our counters call it, where that says more than the code

    def __init__(self, message: str, *, ref: str | None = None, retry_after_ms: int | None = None, turn: int | None = None) -> None:
        super().__init__(message)
        self.ref = ref
        self.retry_after_ms = retry_after_ms
        self.turn = turn


class ClientError(StrettoError):
    """The peer broke the protocol."""

    code = "bad_message"
    http_status = 400


class BadMessage(ClientError):
    """A message that is not a map of the protocol: encoding, types, depth, size."""


class UnknownType(ClientError):
    """A message type that this protocol does not have."""

    code = "unknown_type"


class NotStarted(ClientError):
    """A message before `session.start`."""

    code = "not_started"


class AlreadyStarted(ClientError):
    """A second `session.start`."""

    code = "already_started"


class HandshakeTimeout(ClientError):
    """No `session.start` in time."""

    code = "handshake_timeout"
    close = CLOSE_POLICY


class TooManyErrors(ClientError):
    """The peer keeps sending what we cannot read."""

    code = "too_many_errors"
    close = CLOSE_POLICY


class WrongFrameKind(ClientError):
    """A text frame on the binary protocol, or the other way round."""

    code = "wrong_frame_kind"
    close = CLOSE_WRONG_FRAME


class TextEmpty(ClientError):
    """Text without a visible character."""

    code = "text_empty"


class TextTooLong(ClientError):
    """More text than the limit."""

    code = "text_too_long"


class UnknownVoice(ClientError):
    """No such voice; the message lists what there is."""

    code = "unknown_voice"


class UnknownPersona(ClientError):
    """No such persona in the configuration."""

    code = "unknown_persona"


class UnsupportedCodec(ClientError):
    """An audio format that is not available."""

    code = "unsupported_codec"


class AudioRefused(ClientError):
    """Audio on which its decoder fails again and again; no more of it is taken."""

    code = "audio_refused"


class InputEmpty(ClientError):
    """A commit without speech before it."""

    code = "input_empty"


class NotAvailable(ClientError):
    """A part of the protocol that this gateway is not configured for."""

    code = "not_available"


class UnknownItem(ClientError):
    """No such item in the conversation."""

    code = "unknown_item"


class DuplicateItem(ClientError):
    """The item id is taken."""

    code = "duplicate_item"


class UnknownTurn(ClientError):
    """No such turn, or it is over."""

    code = "unknown_turn"


class TurnActive(ClientError):
    """A reply is on its way; cancel it first or wait for `reply.done`."""

    code = "turn_active"
    retryable = True


class UnknownCall(ClientError):
    """No tool call with this id waits for a result."""

    code = "unknown_call"


class ToolTimedOut(ClientError):
    """The client did not return a tool's result in time; the turn fails, the session goes on."""

    code = "tool_timeout"


class TooManyReplies(ClientError):
    """So many out-of-band replies are on their way that no more are begun."""

    code = "too_many_replies"
    retryable = True


class NotAudio(ClientError):
    """Only a spoken reply can be cut at a moment of its sound."""

    code = "not_audio"


class NotPermitted(ClientError):
    """The key may not do this."""

    code = "not_permitted"
    http_status = 403


class RateLimited(ClientError):
    """Too many messages a second."""

    code = "rate_limited"
    retryable = True
    http_status = 429


class QuotaExceeded(ClientError):
    """The key has used what it may; it may again later. `limit`: which of `quota.LIMITS`."""

    code = "quota_exceeded"
    retryable = True
    http_status = 429

    def __init__(self, message: str, *, limit: str, retry_after_ms: int) -> None:
        super().__init__(message, retry_after_ms=retry_after_ms)
        self.limit = limit


class TooManySessions(QuotaExceeded):
    """The key has as many conversations open as it may."""

    close = CLOSE_OVERLOADED


class ResumeDenied(ClientError):
    """Wrong resume token."""

    code = "resume_denied"
    close = CLOSE_POLICY


class Superseded(ClientError):
    """A newer connection serves the session."""

    code = "superseded"
    close = CLOSE_SUPERSEDED


class Idle(ClientError):
    """Nothing came for too long."""

    code = "idle"
    close = CLOSE_IDLE


class InputRefused(ClientError):
    """The product's moderation does not let this be answered."""

    code = "input_refused"


class SlowReader(ClientError):
    """The peer reads slower than the conversation."""

    code = "slow_reader"
    close = CLOSE_SLOW_READER


class Unauthorized(ClientError):
    """No key, or a wrong one."""

    code = "unauthorized"
    http_status = 401


class WrongKey(Unauthorized):
    """A key or a ticket that is not known: perhaps a guess."""


class TicketUsed(Unauthorized):
    """A ticket that has opened its one connection."""

    code = "ticket_used"


class TicketExpired(Unauthorized):
    """A ticket whose time is over."""

    code = "ticket_expired"


class ForbiddenOrigin(ClientError):
    """A page of another site, or a wrong Host."""

    code = "forbidden_origin"
    http_status = 403


class UnknownModel(ClientError):
    """The URL names a model that is not served here."""

    code = "model_not_found"
    http_status = 404


class UnsupportedSubprotocol(ClientError):
    """None of the offered subprotocols is ours."""

    code = "unsupported_subprotocol"


class Overloaded(StrettoError):
    """We refuse, so that those who are in stay well served."""

    code = "overloaded"
    close = CLOSE_OVERLOADED
    retryable = True
    http_status = 503


class Shedding(Overloaded):
    """There are places, but those who have one would notice one more."""

    reason = "shedding"


class BeyondShare(Overloaded):
    """The last places are kept for keys that hold less than their share."""

    reason = "fair_share"


class Draining(StrettoError):
    """The server is about to stop and takes no new turns or clients; another one, or this one a little later, will."""

    code = "draining"
    retryable = True
    http_status = 503


class Drained(StrettoError):
    """The server stops now."""

    code = "going_away"
    close = CLOSE_DRAINING
    retryable = True


class EngineFailed(StrettoError):
    """A model failed; the session goes on."""

    code = "engine_failed"
    retryable = True


class EngineUnavailable(EngineFailed):
    """The engine is starting or restarting."""

    code = "engine_not_ready"


class EngineTimeout(EngineFailed):
    """The engine made no progress in time."""

    code = "engine_stalled"


class SpeechLost(EngineFailed):
    """An utterance could not be turned into text."""

    code = "asr_failed"


class ReplyLost(EngineFailed):
    """The process that made a reply is gone; the conversation goes on without the rest of it."""

    code = "reply_lost"


class ContextOverflow(EngineFailed):
    """The conversation does not fit into the model's context."""

    code = "context_too_long"
    retryable = False


def from_engine(error: api.EngineError, turn: int | None = None) -> EngineFailed:
    """The wire error for an engine's error; internal detail stays in the log."""
    match error:
        case api.ContextTooLong():
            return ContextOverflow("The conversation is longer than the model's context.", turn=turn)
        case api.EngineNotReady() | api.EngineBusy():
            return EngineUnavailable("The model is not ready; try again in a moment.", turn=turn, retry_after_ms=1000)
        case api.EngineStalled():
            return EngineTimeout("The model made no progress in time.", turn=turn)
        case _:
            return EngineFailed("The model failed on this reply.", turn=turn)
