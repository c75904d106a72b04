"""How voices that step in for each other tell of it: a promise of `engine/api`'s kind, for metrics and logs."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class VoiceObserver(Protocol):
    """Hears what several voices behind one promise go through; for metrics and logs. Never waits."""

    def on_voice_fault(self, engine: str, kind: str, rests: bool) -> None:
        """An engine failed on a text; `rests`: it is not asked for a while."""

    def on_voice_change(self, asked: str, spoken_by: str) -> None:
        """Another voice than the one asked for begins to speak."""


@runtime_checkable
class Observable(Protocol):
    """Voices that step in for each other, and tell of it."""

    def observe(self, observer: VoiceObserver) -> None:
        """From now on `observer` hears of it, and nobody else."""
