"""Scripted engines for tests and benches: they keep every promise of `engine/api` and run no model.

All waits are timers of the running loop, so a virtual-time loop drives them and nothing sleeps in a test. Moments are
absolute (start + TTFT + n * ITL): a slow consumer does not slow the script down, as with a real engine.
What was asked, finished, cancelled and abandoned is kept in bounded records that tests read.
"""

from __future__ import annotations

from engine.fake.model import DEFAULT_REPLY, ScriptedModel
from engine.fake.script import Fault, Script, tokenize
from engine.fake.voice import ScriptedVoice, hum, speech_ms

__all__ = ["DEFAULT_REPLY", "Fault", "Script", "ScriptedModel", "ScriptedVoice", "hum", "speech_ms", "tokenize"]
