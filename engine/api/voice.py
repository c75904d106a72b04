"""What crosses between a segment and a voice, and the promise that the voice keeps."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from engine.api.health import Health


class Style(Struct, frozen=True, kw_only=True):
    """Prosody and feeling of a segment. `rate` and `volume` are factors (1.0 as the voice is), `pitch_st` semitones."""

    emotion: str | None = None
    rate: float = 1.0
    volume: float = 1.0
    pitch_st: float = 0.0


class Voice(Struct, frozen=True, kw_only=True):
    """A voice that can be asked for by `id`; `languages` are BCP 47 primary tags, `scripts` what it can read."""

    id: str
    languages: tuple[str, ...]
    engine: str


class Synthesis(Struct, frozen=True, kw_only=True):
    """One segment to be spoken, at most a few hundred characters of spoken text.

    `encoding` mp3: a voice that makes MP3 itself passes it through in `SpeechChunk.mp3`, beside the PCM.
    """

    request_id: str
    text: str
    voice: str
    language: str
    style: Style = Style()
    sample_rate_hz: int = 24_000
    encoding: Literal["pcm16", "mp3"] = "pcm16"


class WordTiming(Struct, frozen=True, kw_only=True):
    """When a word of the spoken text sounds: milliseconds from the segment's start, code-point range of the spoken text."""

    start_ms: int
    end_ms: int
    start: int
    end: int


class SpeechChunk(Struct, frozen=True, kw_only=True):
    """Audio from a voice: mono s16le at the rate that was asked for, a whole number of samples, in order.

    `voice` is the voice that really spoke, where it may differ from the one asked for. `mp3`: whole frames of about the same
    stretch of audio, only when asked for; joined over the segment they are all of it.
    """

    pcm: bytes
    words: tuple[WordTiming, ...] = ()
    voice: str | None = None
    mp3: bytes = b""


class Synthesizer(Protocol):
    """One voice engine."""

    @property
    def name(self) -> str:
        """Engine, for the banner, logs and metrics (a closed label)."""

    async def start(self) -> None:
        """Load; returns when requests are accepted. Raises `EngineSetupError`."""

    async def close(self) -> None:
        """Stop within a few seconds; open requests end with `EngineNotReady`."""

    def health(self) -> Health:
        """Current state, without waiting."""

    def voices(self) -> tuple[Voice, ...]:
        """What can be asked for; the first is the default."""

    def can_speak(self, text: str, voice: str) -> bool:
        """Whether `voice` reads the script of `text`; asked before every synthesis."""

    def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """Stream the audio as it is made. Closing the generator frees the voice (local engines: within 100 ms).

        Raises `VoiceUnavailable`, `EngineNotReady`, `EngineStalled`, `EngineBusy`, `EngineError`.
        """


@runtime_checkable
class Expectant(Protocol):
    """A voice engine that can get ready ahead, for instance open a connection."""

    def expect(self, voice: str) -> None:
        """A text for `voice` will follow within seconds. Never waits, never fails; may be called often."""
