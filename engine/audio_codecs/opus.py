"""Opus packets to PCM and back, through libopus.

The library comes with the package `opuscodec` (libopus 1.6.1; its own Python classes speak Ogg pages only, which hold packets
back) or from the system (`libopus0`). Calls release the interpreter's lock. Source: libopus API, RFC 6716.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
from functools import lru_cache
from typing import Any

from engine.api import EngineSetupError
from engine.audio import SAMPLE_BYTES
from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.ogg import OggReader, pre_skip_of

RATES_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)
FRAME_MS = 20
_APPLICATION_VOIP = 2048
_SET_BITRATE, _SET_COMPLEXITY, _SET_SIGNAL, _GET_LOOKAHEAD = 4002, 4010, 4024, 4027
_SIGNAL_VOICE = 3001
_MAX_PACKET_BYTES = 1275
_MAX_FRAME_MS = 120


class OpusEncoder:
    """PCM (mono s16le) to packets of 20 ms. Not for two threads at once.

    32 kbit/s is transparent for speech (RFC 7587 section 3.1.1 recommends 28-40 for full-band mono); complexity 5 costs half of 10
    and differs inaudibly at this rate. Raises `EngineSetupError` without a library, `ValueError` for a rate that Opus lacks.
    """

    def __init__(self, sample_rate_hz: int, bitrate_bps: int = 32_000, complexity: int = 5) -> None:
        if sample_rate_hz not in RATES_HZ:
            raise ValueError(f"got the rate {sample_rate_hz} Hz, expected one of {RATES_HZ}")
        self._library = _load()
        self._state = _create(self._library.opus_encoder_create, sample_rate_hz, 1, _APPLICATION_VOIP)
        for request, value in ((_SET_BITRATE, bitrate_bps), (_SET_COMPLEXITY, complexity), (_SET_SIGNAL, _SIGNAL_VOICE)):
            self._library.opus_encoder_ctl(self._state, request, ctypes.c_int(value))
        self._frame_samples = sample_rate_hz * FRAME_MS // 1000
        self._rest = b""
        self._packet = ctypes.create_string_buffer(_MAX_PACKET_BYTES)

    @property
    def lookahead_samples(self) -> int:
        """Samples of delay that a player cuts from the start (6.5 ms)."""
        delay = ctypes.c_int()
        self._library.opus_encoder_ctl(self._state, _GET_LOOKAHEAD, ctypes.byref(delay))
        return delay.value

    def feed(self, pcm: bytes) -> list[bytes]:
        """Packets that are complete now; less than 20 ms waits for more."""
        self._rest += pcm
        size = self._frame_samples * SAMPLE_BYTES
        n_whole = len(self._rest) // size
        frames = [self._rest[i * size : (i + 1) * size] for i in range(n_whole)]
        self._rest = self._rest[n_whole * size :]
        return [self._encode(frame) for frame in frames]

    def flush(self) -> list[bytes]:
        """The rest, filled up with silence; the encoder may go on afterwards."""
        if not self._rest:
            return []
        frame, self._rest = self._rest.ljust(self._frame_samples * SAMPLE_BYTES, b"\0"), b""
        return [self._encode(frame)]

    def _encode(self, frame: bytes) -> bytes:
        n = self._library.opus_encode(self._state, frame, self._frame_samples, self._packet, _MAX_PACKET_BYTES)
        if n < 0:
            raise RuntimeError(f"libopus cannot encode {self._frame_samples} samples (error {n})")
        return self._packet.raw[:n]

    def __del__(self) -> None:
        if state := getattr(self, "_state", None):
            self._library.opus_encoder_destroy(state)


class OpusDecoder:
    """Packets to PCM (mono s16le); stereo is mixed down. Raises as `OpusEncoder`."""

    def __init__(self, sample_rate_hz: int) -> None:
        if sample_rate_hz not in RATES_HZ:
            raise ValueError(f"got the rate {sample_rate_hz} Hz, expected one of {RATES_HZ}")
        self._library = _load()
        self._state = _create(self._library.opus_decoder_create, sample_rate_hz, 1)
        self._room_samples = sample_rate_hz * _MAX_FRAME_MS // 1000
        self._sound = ctypes.create_string_buffer(self._room_samples * SAMPLE_BYTES)

    def decode(self, packet: bytes) -> bytes:
        """PCM of one packet; an empty one stands for a lost one. Raises `CorruptAudio`."""
        room = self._room_samples if packet else self._room_samples * FRAME_MS // _MAX_FRAME_MS
        n = self._library.opus_decode(self._state, packet or None, len(packet), self._sound, room, 0)
        if n < 0:
            raise CorruptAudio(f"expected an Opus packet, got {len(packet)} other bytes (error {n})")
        return self._sound.raw[: n * SAMPLE_BYTES]

    def __del__(self) -> None:
        if state := getattr(self, "_state", None):
            self._library.opus_decoder_destroy(state)


class OggOpusDecoder:
    """An Ogg Opus stream, as HTTP voices send it, to PCM as it comes; always 48 kHz. Raises `CorruptAudio`."""

    sample_rate_hz = 48_000

    def __init__(self) -> None:
        self._reader = OggReader()
        self._decoder = OpusDecoder(self.sample_rate_hz)
        self._to_cut: int | None = None
        self._has_tags = False

    def feed(self, data: bytes) -> bytes:
        """PCM of the packets that are complete now."""
        return b"".join(self._on_packet(packet) for packet in self._reader.feed(data))

    def flush(self) -> None:
        """The stream is over. Raises `CorruptAudio` when it never began."""
        if self._to_cut is None:
            raise CorruptAudio("expected Ogg Opus, got a stream without its header")

    def _on_packet(self, packet: bytes) -> bytes:
        if self._to_cut is None:
            self._to_cut = pre_skip_of(packet) * SAMPLE_BYTES
            return b""
        if not self._has_tags:
            self._has_tags = True
            return b""
        pcm = self._decoder.decode(packet)
        cut = min(self._to_cut, len(pcm))
        self._to_cut -= cut
        return pcm[cut:]


@lru_cache(maxsize=1)
def _load() -> Any:  # Any: a C library
    """Raises `EngineSetupError`."""
    spec = importlib.util.find_spec("opuscodec")
    name = spec.origin if spec is not None else ctypes.util.find_library("opus")
    if name is None:
        raise EngineSetupError("no Opus library: install stretto[codecs], or the system package libopus0")
    library = ctypes.CDLL(name)
    for create in (library.opus_encoder_create, library.opus_decoder_create):
        create.restype = ctypes.c_void_p
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    library.opus_encode.argtypes = [pointer, text, number, text, ctypes.c_int32]
    library.opus_decode.argtypes = [pointer, text, ctypes.c_int32, text, number, number]
    library.opus_encoder_destroy.argtypes = library.opus_decoder_destroy.argtypes = [pointer]
    library.opus_encoder_ctl.argtypes = [pointer, number]  # the third varies
    return library


def _create(create: Any, *arguments: int) -> ctypes.c_void_p:  # Any: a C function
    error = ctypes.c_int()
    state = create(*arguments, ctypes.byref(error))
    if not state or error.value != 0:
        raise RuntimeError(f"libopus cannot start (error {error.value})")
    return ctypes.c_void_p(state)
