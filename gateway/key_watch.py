"""Books what turns came to on the account of their key."""

from __future__ import annotations

from gateway.quota import Quota
from gateway.turn import Caller, TurnRecord


class KeyWatch:
    """A `TurnWatcher`. Tokens are those of prompt and reply, audio is what was said by us; drafts that were dropped count too.

    What was said to us counts when it is text (`session.listening`), for it need not be answered.
    """

    def __init__(self, quota: Quota) -> None:
        self._quota = quota

    def turn_stopped(self, session_id: str, turn: int, caller: Caller) -> None:
        """Nothing is known yet."""

    def turn_ended(self, record: TurnRecord) -> None:
        """As it came out."""
        tokens = record.usage.prompt_tokens + record.usage.output_tokens
        self._quota.of(record.caller.key).spend(tokens, record.audio_ms / 1000, record.ended_s)
