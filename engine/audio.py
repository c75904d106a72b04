"""PCM as it goes through the house: mono, signed 16-bit, little-endian ("s16le"). Lengths, slices, rates, loudness.

Pure, but for the resampler's own state. A byte string of PCM is a whole number of samples everywhere; whoever has half a sample keeps
it. Codecs live in `engine/audio_codecs/`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

SAMPLE_BYTES = 2
_PEAK = 32_767
# Above this a boosted sample bends towards the peak instead of being cut off: a voice at 0.9 of full scale stays a voice.
_KNEE = 0.8
_QUALITY = "HQ"  # 16-bit speech; costs 0.35 ms per second of audio and holds 33 ms back until `flush`


def ms_to_bytes(ms: float, sample_rate_hz: int) -> int:
    """Bytes of `ms` of PCM, rounded down to a whole sample. 20 ms at 24,000 Hz: 960."""
    return int(ms * sample_rate_hz / 1000 + 1e-6) * SAMPLE_BYTES


def bytes_to_ms(n_bytes: int, sample_rate_hz: int) -> float:
    """Length of PCM in milliseconds."""
    return n_bytes / SAMPLE_BYTES * 1000 / sample_rate_hz


def silence(ms: float, sample_rate_hz: int) -> bytes:
    """PCM without a sound."""
    return bytes(ms_to_bytes(ms, sample_rate_hz))


def slice_frames(pcm: bytes, first_bytes: int, next_bytes: int) -> Iterator[bytes]:
    """`pcm` in frames: one of `first_bytes`, the others of `next_bytes`; the last may be shorter. Nothing for no PCM."""
    position, size = 0, first_bytes
    while position < len(pcm):
        yield pcm[position : position + size]
        position, size = position + size, next_bytes


def peak(pcm: bytes) -> float:
    """Loudest sample, 0.0 to 1.0."""
    samples = np.frombuffer(pcm, "<i2")
    return float(np.abs(samples.astype(np.int32)).max() / 32_768) if len(samples) else 0.0


def apply_gain(pcm: bytes, factor: float) -> bytes:
    """PCM made louder or softer by `factor`; what would clip is bent towards full scale, sample by sample.

    Stateless, so chunks of one clip may be given one after another.
    """
    if factor == 1.0:
        return pcm
    return from_float(np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32_768), factor)


def from_float(samples: NDArray[np.float32], factor: float = 1.0) -> bytes:
    """PCM from `(n_samples,)` floats, 1.0 being full scale, times `factor`; what would clip is bent as in `apply_gain`."""
    loud = samples.astype(np.float32) * factor
    size = np.abs(loud)
    over = size > _KNEE
    if over.any():
        room = 1.0 - _KNEE
        loud[over] = np.sign(loud[over]) * (_KNEE + room * np.tanh((size[over] - _KNEE) / room))
    whole: NDArray[np.int16] = np.rint(loud * _PEAK).astype("<i2")
    return whole.tobytes()


class Resampler:
    """Another rate for one stream of PCM, in pieces of any size.

    Raises `ValueError` for a rate that is not positive.
    """

    def __init__(self, from_hz: int, to_hz: int) -> None:
        if from_hz <= 0 or to_hz <= 0:
            raise ValueError(f"got the rates {from_hz} and {to_hz} Hz, expected positive ones")
        self._half = b""
        self._stream = None if from_hz == to_hz else soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16", quality=_QUALITY)

    def feed(self, pcm: bytes) -> bytes:
        """What can be given out now; a trailing half sample waits for its other half."""
        return self._run(pcm, is_last=False)

    def flush(self) -> bytes:
        """The rest. The stream is over; a half sample is dropped."""
        return self._run(b"", is_last=True)

    def _run(self, pcm: bytes, is_last: bool) -> bytes:
        pcm = self._half + pcm
        n_whole = len(pcm) // SAMPLE_BYTES * SAMPLE_BYTES
        pcm, self._half = pcm[:n_whole], pcm[n_whole:]
        if self._stream is None:
            return pcm
        out: NDArray[np.int16] = self._stream.resample_chunk(np.frombuffer(pcm, "<i2"), last=is_last)
        return out.astype("<i2", copy=False).tobytes()
