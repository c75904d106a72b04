"""Takes the silence before the first sound away: it is latency. Pure.

Voices lead with 50-300 ms of silence. The silence after the last word stays, it is the sentence's own pause.
"""

from __future__ import annotations

import numpy as np

from engine.audio import SAMPLE_BYTES, bytes_to_ms, ms_to_bytes

SILENT = 0.01  # of full scale: -40 dBFS
LEAD_MS = 15  # silence kept before the first sound: an attack needs some, a listener does not
_LONGEST_MS = 500  # a voice that is silent for longer means it


class LeadTrim:
    """For one segment: mono s16le in pieces of any size."""

    def __init__(self, sample_rate_hz: int) -> None:
        self._rate_hz = sample_rate_hz
        self._held = b""
        self._is_open = False
        self.cut_ms = 0

    def feed(self, pcm: bytes) -> bytes:
        """What is left; nothing until the first sound, or for half a second. `cut_ms` is final then."""
        if self._is_open:
            return pcm
        self._held += pcm
        loud = np.flatnonzero(np.abs(np.frombuffer(self._held, "<i2").astype(np.int32)) > SILENT * 32_768)
        longest = ms_to_bytes(_LONGEST_MS, self._rate_hz)
        if len(loud):
            start = max(0, min(longest, int(loud[0]) * SAMPLE_BYTES - ms_to_bytes(LEAD_MS, self._rate_hz)))
        elif len(self._held) > longest:
            start = longest
        else:
            return b""
        self._is_open = True
        self.cut_ms = round(bytes_to_ms(start, self._rate_hz))
        pcm, self._held = self._held[start:], b""
        return pcm
