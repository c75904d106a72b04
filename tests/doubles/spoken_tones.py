"""Speech for tests: each word is a tone of its own, so that a test can read from the sound which words were said.

A word sounds for 120 ms (a tone whose frequency stands for the word) and is followed by 60 ms of silence; 100 ms of silence lead.
Words are runs without spaces in Latin text and single characters in Chinese.
"""

from __future__ import annotations

import re
import zlib

import numpy as np

SAMPLE_RATE_HZ = 24_000
LEAD_MS, WORD_MS, PAUSE_MS = 100, 120, 60
_TONES_HZ = tuple(400 + 90 * i for i in range(40))
_WORD = re.compile(r"[一-鿿]|[^\W一-鿿][^\s一-鿿]*")


def words_of(text: str) -> list[str]:
    """The words as they are spoken, without marks around them."""
    return [word.rstrip(".,!?;:，。！？") for word in _WORD.findall(text)]


def tone_of(word: str) -> int:
    """Number of the tone that stands for `word` (40 tones: different words may share one)."""
    return zlib.crc32(word.encode()) % len(_TONES_HZ)


def speak(text: str, rate_hz: int = SAMPLE_RATE_HZ) -> bytes:
    """The text as tones: mono s16le."""
    parts = [np.zeros(rate_hz * LEAD_MS // 1000)]
    moments = np.arange(rate_hz * WORD_MS // 1000) / rate_hz
    fade = np.minimum(1, np.minimum(moments, moments[::-1]) / 0.008)
    for word in words_of(text):
        parts += [9000 * fade * np.sin(2 * np.pi * _TONES_HZ[tone_of(word)] * moments), np.zeros(rate_hz * PAUSE_MS // 1000)]
    return np.concatenate(parts).astype("<i2").tobytes()


def timings(text: str) -> list[tuple[str, int, int]]:
    """Words with the milliseconds at which they start and end."""
    step = WORD_MS + PAUSE_MS
    return [(word, LEAD_MS + i * step, LEAD_MS + i * step + WORD_MS) for i, word in enumerate(words_of(text))]


def listen(pcm: bytes, rate_hz: int = SAMPLE_RATE_HZ) -> list[int]:
    """Tones heard, in order. Half a word counts: whatever sounds longer than 15 ms."""
    samples = np.frombuffer(pcm, "<i2").astype(float)
    window = rate_hz // 200
    n = len(samples) // window
    loud = np.abs(samples[: n * window]).reshape(n, window).max(axis=1) > 1200
    heard: list[int] = []
    start: int | None = None
    for i, is_loud in enumerate([*loud, False]):
        if is_loud and start is None:
            start = i
        elif not is_loud and start is not None:
            if i - start >= 3:
                heard.append(_nearest(samples[start * window : i * window], rate_hz))
            start = None
    return heard


def _nearest(burst: np.ndarray, rate_hz: int) -> int:
    spectrum = np.abs(np.fft.rfft(burst * np.hanning(len(burst)), 1 << 14))
    frequency = float(np.argmax(spectrum)) * rate_hz / (1 << 14)
    return int(np.argmin([abs(frequency - tone) for tone in _TONES_HZ]))
