"""What a client's microphone sends, in whatever form, as the ears want it: mono s16le at 16 kHz. No waiting here.

Cheap enough for the event loop: 0.4 ms for a second of PCM, 2 ms for a second of opus.
"""

from __future__ import annotations

from typing import Literal, get_args

from engine.audio import Resampler
from engine.audio_codecs import CorruptAudio, g711
from engine.audio_codecs.opus import OpusDecoder

InputCodec = Literal["pcm16", "opus", "g711u", "g711a"]

RATE_HZ = 16_000
_RATES_HZ = (8_000, 48_000)
_LONGEST_PACKET_BYTES = 1500  # an opus packet of 120 ms has at most 1275 for each of its frames, and fits a datagram


class IncomingAudio:
    """One stream of a client. `rate_hz` is that of pcm16; opus and G.711 have their own.

    Raises `ValueError` for a codec or rate that cannot be heard, `EngineSetupError` where the library of a codec is missing.
    """

    def __init__(self, codec: str, rate_hz: int = RATE_HZ) -> None:
        if codec not in get_args(InputCodec):
            raise ValueError(f"got the audio codec {codec!r}, expected one of {', '.join(get_args(InputCodec))}")
        if codec == "pcm16" and not _RATES_HZ[0] <= rate_hz <= _RATES_HZ[1]:
            raise ValueError(f"got the rate {rate_hz} Hz, expected {_RATES_HZ[0]} to {_RATES_HZ[1]}")
        self._codec = codec
        self._opus = OpusDecoder(RATE_HZ) if codec == "opus" else None
        own_rate_hz = {"pcm16": rate_hz, "opus": RATE_HZ}.get(codec, g711.RATE_HZ)
        self._resampler = Resampler(own_rate_hz, RATE_HZ)

    def feed(self, data: bytes) -> bytes:
        """PCM that can be given out now; opus: `data` is one packet, empty for a lost one. Raises `CorruptAudio`; the stream goes on."""
        return self._resampler.feed(self._decode(data))

    def flush(self) -> bytes:
        """The rest; the stream is over."""
        return self._resampler.flush()

    def _decode(self, data: bytes) -> bytes:
        if self._opus is not None:
            if len(data) > _LONGEST_PACKET_BYTES:
                raise CorruptAudio(f"expected an Opus packet of at most {_LONGEST_PACKET_BYTES} bytes, got {len(data)}")
            return self._opus.decode(data)
        if self._codec == "g711u":
            return g711.decode(data, "g711u")
        if self._codec == "g711a":
            return g711.decode(data, "g711a")
        return data
