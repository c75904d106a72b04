"""Errors as frames."""

from __future__ import annotations

from gateway.errors import StrettoError
from gateway.events import ErrorRaised


def error_frame(error: StrettoError, ref: str | None = None) -> ErrorRaised:
    """The `error` frame of an error that the peer may see."""
    return ErrorRaised(
        ref=error.ref or ref,
        code=error.code,
        message=str(error),
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
        turn=error.turn,
    )
