"""How much audio goes into one inference. Pure.

Whisper was trained on windows of 30 s; the encoder's cost grows with the window. One of 10 s reads short speech as well, as long as silence
follows the speech in it: with less than about a second of it, and in windows below 8 s, the model repeats itself ("No. No.").
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.mel import RATE_HZ, Floats

WINDOWS_S = (10, 15, 20, 30)
_SILENCE_S = 1  # of padding at least
LONGEST = (WINDOWS_S[-1] - _SILENCE_S) * RATE_HZ  # samples of one inference
_EARLIEST_CUT = 20 * RATE_HZ  # a long utterance is cut at its quietest place between here and `LONGEST`
_QUIET_SPAN = RATE_HZ // 10


def window_s(n_samples: int) -> int:
    """The window for a piece of at most `LONGEST` samples."""
    return next(window for window in WINDOWS_S if n_samples <= (window - _SILENCE_S) * RATE_HZ)


def split(samples: Floats, start: int = 0) -> Iterator[tuple[int, int]]:
    """(start, end) of the pieces of an utterance from `start` on, each of at most `LONGEST` samples.

    A cut depends only on what lies before it and within reach: a piece that is not the last stays when the utterance grows.
    """
    while len(samples) - start > LONGEST:
        end = start + _EARLIEST_CUT + _quietest(samples[start + _EARLIEST_CUT : start + LONGEST])
        yield start, end
        start = end
    yield start, len(samples)


def _quietest(samples: Floats) -> int:
    """The middle of the quietest tenth of a second."""
    n_spans = len(samples) // _QUIET_SPAN
    energy = np.square(samples[: n_spans * _QUIET_SPAN]).reshape(n_spans, _QUIET_SPAN).sum(axis=1)
    return int(energy.argmin()) * _QUIET_SPAN + _QUIET_SPAN // 2
