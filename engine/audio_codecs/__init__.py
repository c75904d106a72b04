"""Compressed audio in both directions: what voices send us, and what clients ask for. PCM itself is `engine/audio.py`'s."""

from __future__ import annotations

from engine.api import EngineError


class CorruptAudio(EngineError):
    """Audio from a voice that cannot be decoded."""

    kind = "corrupt"
