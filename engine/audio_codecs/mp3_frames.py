"""Finds whole MP3 frames in a byte stream. Pure: bytes in, frames out, nothing decoded.

Assumes Layer III. Bytes that belong to no frame are counted, so that the reader can give up on something that is no MP3.
Source: ISO/IEC 11172-3 section 2.4.1, 13818-3 section 2.4.1.
"""

from __future__ import annotations

from msgspec import Struct

_BITRATES_KBPS = {
    "1": (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    "2": (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_RATES_HZ = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
HEADER_BYTES = 4
# Silence before the first sample: LAME's and most encoders' own delay (576) plus the decoder's (529); source: LAME technical FAQ,
# "decoder delay".
ENCODER_DELAY_SAMPLES = 576 + 529


class Frame(Struct, frozen=True):
    """One frame: its bytes, its length in samples per channel, and the main-data bytes that it carries."""

    data: bytes
    n_samples: int
    sample_rate_hz: int
    main_data_bytes: int
    is_tag: bool


class Header(Struct, frozen=True):
    """What the first four bytes say."""

    length_bytes: int
    n_samples: int
    sample_rate_hz: int
    side_bytes: int

    def same_stream(self, other: Header) -> bool:
        """Whether the two frames can be neighbors."""
        return self.sample_rate_hz == other.sample_rate_hz and self.side_bytes == other.side_bytes


def read_header(data: bytes, at: int) -> Header | None:
    """The header at `at`, or None when these four bytes are none (free-format streams are not read)."""
    first, second, third, fourth = data[at : at + HEADER_BYTES]
    if first != 0xFF or second & 0xE0 != 0xE0 or (second >> 1) & 3 != 1:
        return None
    version, bitrate_index, rate_index = (second >> 3) & 3, third >> 4, (third >> 2) & 3
    if version == 1 or bitrate_index in (0, 15) or rate_index == 3:
        return None
    is_first = version == 3
    rate_hz = _RATES_HZ[version][rate_index]
    bits_per_s = 1000 * _BITRATES_KBPS["1" if is_first else "2"][bitrate_index]
    is_mono = fourth >> 6 == 3
    side = (17 if is_mono else 32) if is_first else (9 if is_mono else 17)
    checksum = 0 if second & 1 else 2
    length = (144 if is_first else 72) * bits_per_s // rate_hz + ((third >> 1) & 1)
    return Header(length, 1152 if is_first else 576, rate_hz, HEADER_BYTES + checksum + side)


class FrameReader:
    """Splits a stream of bytes into frames, at whatever places it is cut."""

    def __init__(self) -> None:
        self._buffer = b""
        self._last: Header | None = None
        self.skipped_bytes = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete now."""
        self._buffer += data
        frames: list[Frame] = []
        at = 0
        while at + HEADER_BYTES <= len(self._buffer):
            header = read_header(self._buffer, at)
            if header is None or not self._is_plausible(header, at):
                at += 1
                self.skipped_bytes += 1
                continue
            if at + header.length_bytes > len(self._buffer):
                break
            frames.append(_frame(self._buffer[at : at + header.length_bytes], header))
            self._last = header
            at += header.length_bytes
        self._buffer = self._buffer[at:]
        return frames

    def flush(self) -> None:
        """The stream is over: what is left is no frame."""
        self.skipped_bytes += len(self._buffer)
        self._buffer = b""

    def _is_plausible(self, header: Header, at: int) -> bool:
        """A header inside garbage rarely agrees with the stream so far, or with the header behind its own frame."""
        if self._last is not None and not header.same_stream(self._last):
            return False
        behind = at + header.length_bytes
        if behind + HEADER_BYTES > len(self._buffer):
            return True
        following = read_header(self._buffer, behind)
        return following is not None and following.same_stream(header)


def _frame(data: bytes, header: Header) -> Frame:
    tag = data[header.side_bytes : header.side_bytes + 4] in (b"Xing", b"Info")
    return Frame(data, header.n_samples, header.sample_rate_hz, max(0, len(data) - header.side_bytes), tag)
