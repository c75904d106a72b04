"""A WAV file for the browser's fake microphone: a humming voice with syllables, which its noise suppression takes for speech."""

from __future__ import annotations

import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np

RATE_HZ = 48_000
PITCH_HZ, SYLLABLES_HZ = 120, 4


def hum(path: Path, spans_s: Sequence[tuple[float, float]], length_s: float = 30.0) -> Path:
    """Speech within each (from, to), silence elsewhere; mono s16le. Gives the path back."""
    times = np.arange(int(length_s * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(PITCH_HZ + 25 * np.sin(2 * np.pi * 0.9 * times)) / RATE_HZ
    voice = np.sum([np.sin(k * phase) * np.exp(-(((k * PITCH_HZ - 600) / 700) ** 2)) for k in range(1, 20)], axis=0)
    loudness = np.zeros_like(times)
    for start_s, end_s in spans_s:
        is_in = (times >= start_s) & (times < end_s)
        loudness[is_in] = 0.55 + 0.45 * np.sin(2 * np.pi * SYLLABLES_HZ * (times[is_in] - start_s))
    samples = (voice / np.abs(voice).max() * loudness * 16_000).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(samples.tobytes())
    return path
