"""Log-mel spectrograms as Whisper and the models built on its encoder want them. Pure.

Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section 2.2: 25 ms windows, 10 ms stride,
80 channels; the channels' scale is Slaney's (Auditory Toolbox, 1998): linear below 1 kHz, logarithmic above, each of equal area.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

RATE_HZ = 16_000
HOP = 160
_WINDOW = 400
_FLOOR = 1e-10  # before the logarithm
_RANGE = 8.0  # powers of ten kept below the loudest point
_LINEAR_HZ = 200 / 3  # width of a channel below the break
_BREAK_HZ = 1000.0
_STEP = np.log(6.4) / 27  # 27 channels from 1 kHz to 6.4 kHz


def log_mel(samples: Floats, n_frames: int, n_channels: int = 80) -> Floats:
    """`(n_channels, n_frames)` features of `(n_samples,)` floats, 1.0 being full scale; silence follows where they are too short.

    Silent frames are not computed one by one: the padding of a short utterance costs next to nothing.
    """
    edge = _WINDOW // 2
    wanted = n_frames * HOP
    heard = samples[:wanted].astype(np.float32)
    # Centered windows: what lies before the first sample is the mirror of what follows it.
    mirrored = np.pad(heard, (edge, 0), mode="reflect") if len(heard) > edge else np.concatenate((np.zeros(edge, np.float32), heard))
    n_loud = min(n_frames, -(-len(mirrored) // HOP))
    room = np.zeros((n_loud - 1) * HOP + _WINDOW if n_loud else 0, np.float32)
    room[: min(len(room), len(mirrored))] = mirrored[: len(room)]
    if len(samples) >= wanted and n_loud == n_frames:
        _mirror_end(room, samples, wanted, edge)
    windows = np.lib.stride_tricks.sliding_window_view(room, _WINDOW)[::HOP] if n_loud else np.zeros((0, _WINDOW), np.float32)
    power = np.abs(np.fft.rfft(windows * _hann())) ** 2
    loud = np.log10(np.maximum(power @ _filters(n_channels), _FLOOR))
    features = np.full((n_frames, n_channels), np.log10(_FLOOR))
    features[:n_loud] = loud
    features = np.maximum(features, features.max() - _RANGE)
    return np.ascontiguousarray(((features + 4.0) / 4.0).T, np.float32)


def _mirror_end(room: Floats, samples: Floats, wanted: int, edge: int) -> None:
    """What lies behind the last sample of a full window is its mirror too."""
    end = edge + wanted
    if len(room) > end:
        n_behind = len(room) - end
        room[end:] = samples[wanted - 1 - n_behind : wanted - 1][::-1]


def normalize(samples: Floats) -> Floats:
    """Zero mean and unit variance, as models want that were trained on leveled audio."""
    leveled: Floats = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
    return leveled


@lru_cache(maxsize=1)
def _hann() -> Floats:
    """Periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)).astype(np.float32)


@lru_cache(maxsize=4)
def _filters(n_channels: int) -> NDArray[np.float64]:
    """`(n_bins, n_channels)` triangles whose corners are evenly spaced on the mel scale, each of unit area."""
    corners = _to_hz(np.linspace(0.0, _to_mel(RATE_HZ / 2), n_channels + 2))
    bins = np.linspace(0.0, RATE_HZ / 2, _WINDOW // 2 + 1)[:, None]
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    triangles = np.minimum((bins - left) / (middle - left), (right - bins) / (right - middle))
    return np.asarray(np.maximum(triangles, 0.0) * (2.0 / (right - left)))


def _to_mel(hz: float) -> float:
    return float(_BREAK_HZ / _LINEAR_HZ + np.log(hz / _BREAK_HZ) / _STEP) if hz > _BREAK_HZ else hz / _LINEAR_HZ


def _to_hz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    break_mel = _BREAK_HZ / _LINEAR_HZ
    return np.where(mels < break_mel, mels * _LINEAR_HZ, _BREAK_HZ * np.exp(_STEP * (mels - break_mel)))
