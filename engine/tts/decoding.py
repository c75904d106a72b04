"""What a speech server sends, whatever it says it is, as PCM at the rate that was asked for. No waiting here.

The bytes decide first (servers answer WAV when asked for headerless PCM), then `Content-Type`, then what was asked for.
"""

from __future__ import annotations

from email.message import Message
from typing import Literal, Protocol

from engine.api import EngineError
from engine.audio import Resampler
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.audio_codecs.opus import OggOpusDecoder
from engine.audio_codecs.wav import WavDecoder

AudioFormat = Literal["pcm", "wav", "mp3", "opus"]
_BY_MAGIC: dict[bytes, AudioFormat] = {b"RIFF": "wav", b"OggS": "opus", b"ID3": "mp3"}
_BY_TYPE: dict[str, AudioFormat] = {
    "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3",
    "audio/ogg": "opus", "audio/opus": "opus", "audio/pcm": "pcm", "audio/l16": "pcm",
}  # fmt: skip
_MAGIC_BYTES = 4


class UnexpectedAnswer(EngineError):
    """The server answered with something that is no audio."""

    kind = "protocol"


class Decoder(Protocol):
    """Bytes in, mono s16le out at its own rate, which is known once there is sound."""

    @property
    def sample_rate_hz(self) -> int | None: ...
    def feed(self, data: bytes) -> bytes: ...
    def flush(self) -> None: ...


class RawPcm:
    """Headerless PCM; half a sample waits, and is dropped at the end."""

    def __init__(self, sample_rate_hz: int) -> None:
        self.sample_rate_hz: int | None = sample_rate_hz
        self._half = b""

    def feed(self, data: bytes) -> bytes:
        data = self._half + data
        n_whole = len(data) // 2 * 2
        self._half = data[n_whole:]
        return data[:n_whole]

    def flush(self) -> None:
        """Nothing to check: any bytes are PCM."""


class SpeechDecoder:
    """One answer. Raises `UnexpectedAnswer` for a type that is no audio, `CorruptAudio` for audio that is none."""

    def __init__(self, content_type: str | None, asked: AudioFormat, pcm_rate_hz: int, to_rate_hz: int) -> None:
        kind, rate_hz = _read_type(content_type)
        if kind.startswith("text/") or kind in ("application/json", "application/xml", "application/problem+json"):
            raise UnexpectedAnswer(f"expected audio, got {kind}")
        self._format = _BY_TYPE.get(kind, asked)
        self._pcm_rate_hz, self._to_rate_hz = rate_hz or pcm_rate_hz, to_rate_hz
        self._start = b""
        self._decoder: Decoder | None = None
        self._resampler: Resampler | None = None

    def feed(self, data: bytes) -> bytes:
        """PCM that is ready."""
        if self._decoder is None:
            self._start += data
            if len(self._start) < _MAGIC_BYTES:
                return b""
            self._decoder = self._choose()
            data, self._start = self._start, b""
        return self._convert(self._decoder.feed(data))

    def flush(self) -> bytes:
        """The rest; the answer is over."""
        sound = b""
        if self._decoder is None and self._start:
            self._decoder = self._choose()
            sound = self._convert(self._decoder.feed(self._start))
        if self._decoder is not None:
            self._decoder.flush()
        return sound + (self._resampler.flush() if self._resampler is not None else b"")

    def _convert(self, pcm: bytes) -> bytes:
        if not pcm or self._decoder is None:
            return b""
        if self._resampler is None:
            assert self._decoder.sample_rate_hz is not None, "a decoder that gave sound knows its rate"
            self._resampler = Resampler(self._decoder.sample_rate_hz, self._to_rate_hz)
        return self._resampler.feed(pcm)

    def _choose(self) -> Decoder:
        kind = next((kind for magic, kind in _BY_MAGIC.items() if self._start.startswith(magic)), self._format)
        match kind:
            case "wav":
                return WavDecoder()
            case "mp3":
                return Mp3Decoder()
            case "opus":
                return OggOpusDecoder()
            case "pcm":
                return RawPcm(self._pcm_rate_hz)


def _read_type(content_type: str | None) -> tuple[str, int | None]:
    """The type in small letters, and the rate of `audio/pcm;rate=16000` where it is a plausible one."""
    message = Message()
    message["Content-Type"] = content_type or "application/octet-stream"
    rate = str(message.get_param("rate", ""))
    rate_hz = int(rate) if rate.isascii() and rate.isdigit() else 0
    return message.get_content_type(), rate_hz if 8_000 <= rate_hz <= 96_000 else None
