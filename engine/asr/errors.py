"""How a remote recognizer fails."""

from __future__ import annotations

from engine.api import EngineError


class TranscriptionRefused(EngineError):
    """The server refuses the request: key, model, language or audio."""

    kind = "refused"
    retryable = False


class UnexpectedAnswer(EngineError):
    """The server answered with something that is no transcript."""

    kind = "protocol"
