"""When a person begins to speak, has finished, or interrupts: decided from numbers and text, without a clock of its own."""

from __future__ import annotations

from gateway.endpointing.barge_in import Verdict, judge
from gateway.endpointing.echo import is_echo
from gateway.endpointing.endpointer import (
    Decision,
    EndLikely,
    Endpointer,
    NoiseHeard,
    ScoreWanted,
    SpeechResumed,
    SpeechStarted,
    TurnEnded,
)
from gateway.endpointing.reading import Reading, read, read_heard
from gateway.endpointing.script import simplified
from gateway.endpointing.waiting import wait_ms
from gateway.endpointing.wishes import LONGEST_PREROLL_MS, LONGEST_SILENCE_MS, adapted, in_force

__all__ = [
    "LONGEST_PREROLL_MS", "LONGEST_SILENCE_MS",
    "Decision", "EndLikely", "Endpointer", "NoiseHeard", "Reading", "ScoreWanted", "SpeechResumed", "SpeechStarted", "TurnEnded", "Verdict",
    "adapted", "in_force", "is_echo", "judge", "read", "read_heard", "simplified", "wait_ms",
]  # fmt: skip
