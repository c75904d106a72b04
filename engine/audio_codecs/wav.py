"""PCM out of a WAV file that is still being written. Pure. Source: RIFF WAVE, "Multimedia Programming Interface" (1991).

Servers that stream leave the length fields 0 or full: the data chunk lasts to the end then. 16-bit PCM only.
"""

from __future__ import annotations

import numpy as np

from engine.audio import SAMPLE_BYTES
from engine.audio_codecs import CorruptAudio

_MAX_HEAD_BYTES = 65_536
_PCM, _EXTENSIBLE = 1, 0xFFFE
_UNKNOWN_LENGTHS = (0, 0xFFFFFFFF, 0x7FFFFFFF)


class WavDecoder:
    """Mono s16le at the file's own rate (known after the header); more channels are mixed down. Raises `CorruptAudio`."""

    def __init__(self) -> None:
        self._head = b""
        self._left_bytes: int | None = None
        self._n_channels = 1
        self._rest = b""
        self.sample_rate_hz: int | None = None

    def feed(self, data: bytes) -> bytes:
        """PCM that is here now; half a sample waits."""
        if self._left_bytes is None:
            self._head += data
            start = self._read_head()
            if start is None:
                return b""
            data, self._head = self._head[start:], b""
        assert self._left_bytes is not None, "set with the header"
        data = self._rest + data[: self._left_bytes]
        self._left_bytes -= len(data) - len(self._rest)
        size = SAMPLE_BYTES * self._n_channels
        n_whole = len(data) // size * size
        self._rest = data[n_whole:]
        return self._mix(data[:n_whole])

    def flush(self) -> None:
        """The file is over. Raises `CorruptAudio` when it ended inside its header."""
        if self._left_bytes is None:
            raise CorruptAudio(f"expected WAV, got {len(self._head)} bytes without a data chunk")

    def _mix(self, data: bytes) -> bytes:
        if self._n_channels == 1:
            return data
        samples = np.frombuffer(data, "<i2").reshape(-1, self._n_channels)
        return bytes(samples.mean(axis=1).astype("<i2").tobytes())

    def _read_head(self) -> int | None:
        """Where the samples start, or None when the header is not whole yet."""
        head = self._head
        if not b"RIFF".startswith(head[:4]) or (len(head) >= 12 and head[8:12] != b"WAVE") or len(head) > _MAX_HEAD_BYTES:
            raise CorruptAudio(f"expected WAV, got {head[:12]!r}")
        at = 12
        while at + 8 <= len(head):
            name, size = head[at : at + 4], int.from_bytes(head[at + 4 : at + 8], "little")
            if name == b"data":
                if self.sample_rate_hz is None:
                    raise CorruptAudio("expected a WAV format chunk before the data")
                self._left_bytes = 1 << 62 if size in _UNKNOWN_LENGTHS else size
                return at + 8
            if name == b"fmt " and at + 24 <= len(head):
                self._read_format(head[at + 8 : at + 24])
            at += 8 + size + size % 2
        return None

    def _read_format(self, chunk: bytes) -> None:
        kind, channels = int.from_bytes(chunk[0:2], "little"), int.from_bytes(chunk[2:4], "little")
        rate_hz, bits = int.from_bytes(chunk[4:8], "little"), int.from_bytes(chunk[14:16], "little")
        if kind not in (_PCM, _EXTENSIBLE) or bits != 16 or not 1 <= channels <= 8 or not 8_000 <= rate_hz <= 192_000:
            raise CorruptAudio(f"expected 16-bit PCM, got WAV kind {kind}, {bits} bits, {channels} channels, {rate_hz} Hz")
        self._n_channels, self.sample_rate_hz = channels, rate_hz
