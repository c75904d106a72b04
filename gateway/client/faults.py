"""What can go wrong for a client, one class per thing that a caller can do."""

from __future__ import annotations

from gateway import errors
from gateway.events import ErrorRaised

CLOSE_REASONS = {
    1000: "closed normally",
    1006: "the connection broke",
    1012: "the server restarts",
    errors.CLOSE_WRONG_FRAME: "we sent a wrong kind of frame",
    errors.CLOSE_POLICY: "we broke a rule of the protocol",
    errors.CLOSE_TOO_BIG: "we sent too large a message",
    errors.CLOSE_BUG: "the server failed",
    errors.CLOSE_OVERLOADED: "the server is full",
    errors.CLOSE_SUPERSEDED: "another connection took this conversation over",
    errors.CLOSE_IDLE: "nothing was said for too long",
    errors.CLOSE_SLOW_READER: "we read slower than the conversation",
    errors.CLOSE_DRAINING: "the server is stopping",
}
# A conversation may go on behind these; after any other code a resume would only be refused.
RESUMABLE_CLOSES = frozenset({1001, 1005, 1006, 1012, errors.CLOSE_BUG, errors.CLOSE_SLOW_READER})
RETRYABLE_CLOSES = RESUMABLE_CLOSES | {errors.CLOSE_OVERLOADED, errors.CLOSE_DRAINING, errors.CLOSE_IDLE}


class ConversationError(Exception):
    """Base. `retryable`: the same again may work, at best after `retry_after_s`."""

    def __init__(self, message: str, *, retryable: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class ConnectFailed(ConversationError):
    """No connection. `status` is the HTTP status of a refused handshake, None when nobody answered; `code` the server's word for why."""

    def __init__(
        self, message: str, *, status: int | None = None, code: str = "", retryable: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, retryable=retryable, retry_after_s=retry_after_s)
        self.status = status
        self.code = code


class ConversationLost(ConversationError):
    """The connection is gone for good. `close_code` is the WebSocket's."""

    def __init__(self, close_code: int, reason: str) -> None:
        meaning = CLOSE_REASONS.get(close_code, "unknown close code")
        super().__init__(f"connection closed with {close_code} ({meaning}){': ' if reason else ''}{reason}")
        self.close_code = close_code
        self.retryable = close_code in RETRYABLE_CLOSES


class NoAnswer(ConversationError):
    """The server did not answer a message in time."""


class Refused(ConversationError):
    """The server answered with an `error`; `code` is from the protocol's table."""

    def __init__(self, error: ErrorRaised) -> None:
        after_s = None if error.retry_after_ms is None else error.retry_after_ms / 1000
        super().__init__(f"{error.message} ({error.code})", retryable=error.retryable, retry_after_s=after_s)
        self.code = error.code
