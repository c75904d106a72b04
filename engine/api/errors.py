"""What can go wrong in an engine, by what its caller can do about it."""

from __future__ import annotations


class EngineError(Exception):
    """A model failed. `kind` is a closed label for metrics; the message never reaches the peer. `retry_after_s`: the service's own wish."""

    kind = "failed"
    retryable = True
    retry_after_s: float | None = None


class EngineNotReady(EngineError):
    """The engine is starting, restarting or dead: try again later."""

    kind = "not_ready"


class EngineStalled(EngineError):
    """No progress within the deadline."""

    kind = "stalled"


class EngineBusy(EngineError):
    """The engine's bounded queue is full."""

    kind = "busy"


class ContextTooLong(EngineError):
    """The prompt does not fit into the model's context."""

    kind = "context_too_long"
    retryable = False


class VoiceUnavailable(EngineError):
    """No voice can speak this text (its script, or an unknown voice)."""

    kind = "no_voice"
    retryable = False


class SpeechCut(EngineError):
    """A voice stopped in the middle of a segment. `spoken`: code points of the text that were surely said, None if unknown."""

    kind = "cut"

    def __init__(self, message: str, spoken: int | None = None) -> None:
        super().__init__(message)
        self.spoken = spoken


class EngineSetupError(Exception):
    """An engine cannot be built: missing package, weights or hardware. The message tells an operator what to do."""
