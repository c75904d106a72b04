"""Packets out of an Ogg stream. Pure. Source: RFC 3533 section 6, RFC 7845 sections 4 and 5 (Opus in Ogg).

Checksums are not verified: the stream comes over TCP. Assumes one logical stream.
"""

from __future__ import annotations

from engine.audio_codecs import CorruptAudio

_CAPTURE = b"OggS"
_PAGE_HEADER_BYTES = 27
_MAX_SKIPPED_BYTES = 4096
_MAX_PACKET_BYTES = 65_536  # an Opus packet of 120 ms has at most 7,664 bytes; comment headers may be larger
_MIN_HEAD_BYTES = 19


class OggReader:
    """Splits bytes, cut anywhere, into packets. Raises `CorruptAudio` for what is no Ogg."""

    def __init__(self) -> None:
        self._buffer = b""
        self._packet = b""
        self._skipped = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Packets that are complete now."""
        self._buffer += data
        packets: list[bytes] = []
        while (page := self._next_page()) is not None:
            packets += self._packets_of(*page)
        return packets

    def _next_page(self) -> tuple[bytes, bytes] | None:
        """Lacing values and body of the next whole page."""
        start = self._buffer.find(_CAPTURE)
        skip = start if start >= 0 else max(0, len(self._buffer) - len(_CAPTURE) + 1)
        self._skipped += skip
        self._buffer = self._buffer[skip:]
        if self._skipped > _MAX_SKIPPED_BYTES:
            raise CorruptAudio(f"expected Ogg, got {self._skipped} bytes that belong to no page")
        if start < 0 or len(self._buffer) < _PAGE_HEADER_BYTES:
            return None
        head_bytes = _PAGE_HEADER_BYTES + self._buffer[26]
        lacing = self._buffer[_PAGE_HEADER_BYTES:head_bytes]
        end = head_bytes + sum(lacing)
        if len(lacing) < self._buffer[26] or len(self._buffer) < end:
            return None
        body, self._buffer = self._buffer[head_bytes:end], self._buffer[end:]
        return lacing, body

    def _packets_of(self, lacing: bytes, body: bytes) -> list[bytes]:
        """A packet ends with the first lacing value under 255; one that does not goes on in the next page."""
        packets, at = [], 0
        for size in lacing:
            self._packet += body[at : at + size]
            at += size
            if len(self._packet) > _MAX_PACKET_BYTES:
                raise CorruptAudio(f"expected packets of at most {_MAX_PACKET_BYTES} bytes")
            if size < 255:
                packets.append(self._packet)
                self._packet = b""
        return packets


def pre_skip_of(head: bytes) -> int:
    """Samples at 48 kHz to cut from the start, from an `OpusHead` packet. Raises `CorruptAudio`."""
    if not head.startswith(b"OpusHead") or len(head) < _MIN_HEAD_BYTES:
        raise CorruptAudio(f"expected an Opus header, got {len(head)} other bytes")
    return int.from_bytes(head[10:12], "little")
