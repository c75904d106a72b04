"""G.711, the telephone's 8-bit samples, to and from PCM, by table. Source: ITU-T G.711 (1988), tables 1 and 2."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Law = Literal["g711u", "g711a"]

RATE_HZ = 8_000
_MU_BIAS = 132  # 33 on the 14-bit scale of the recommendation


def _mu_levels() -> NDArray[np.int16]:
    code = ~np.arange(256) & 0xFF
    size = (((code & 0x0F) << 3) + _MU_BIAS << ((code & 0x70) >> 4)) - _MU_BIAS
    return np.where(code & 0x80, -size, size).astype("<i2")


def _a_levels() -> NDArray[np.int16]:
    code = np.arange(256) ^ 0x55
    step = (code & 0x70) >> 4
    size = ((code & 0x0F) << 4) + 8
    size = np.where(step > 0, (size + 256) << np.maximum(step - 1, 0), size)
    return np.where(code & 0x80, size, -size).astype("<i2")


def _nearest(levels: NDArray[np.int16]) -> NDArray[np.uint8]:
    """Code for each 16-bit sample, indexed by sample + 32,768: the level next to it, the smaller one of two as near."""
    order = np.argsort(levels, kind="stable")
    ordered = levels[order].astype(np.int32)
    samples = np.arange(-32_768, 32_768)
    above = np.clip(np.searchsorted(ordered, samples), 1, len(ordered) - 1)
    to_above, to_below = np.abs(ordered[above] - samples), np.abs(samples - ordered[above - 1])
    is_above = (to_above < to_below) | ((to_above == to_below) & (samples < 0))
    codes = order[np.where(is_above, above, above - 1)].astype(np.uint8)
    zeros = np.flatnonzero(levels == 0)
    if len(zeros):
        codes[codes == zeros[0]] = zeros[-1]  # of mu-law's two zeros the positive one, 0xFF: an idle telephone line
    return codes


_LEVELS: dict[str, NDArray[np.int16]] = {"g711u": _mu_levels(), "g711a": _a_levels()}
_CODES = {law: _nearest(levels) for law, levels in _LEVELS.items()}


def decode(data: bytes, law: Law) -> bytes:
    """PCM (s16le) of 8-bit samples; every byte is one."""
    return _LEVELS[law][np.frombuffer(data, np.uint8)].tobytes()


def encode(pcm: bytes, law: Law) -> bytes:
    """8-bit samples of PCM (s16le), a whole number of samples. Raises `ValueError` for half a sample."""
    if len(pcm) % 2:
        raise ValueError(f"got {len(pcm)} bytes, expected whole 16-bit samples")
    return _CODES[law][np.frombuffer(pcm, "<i2").astype(np.int32) + 32_768].tobytes()
