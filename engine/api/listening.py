"""What crosses between a microphone and the engines of listening, and the promises that they keep."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from msgspec import Struct

from engine.api.health import Health


class Ear(Protocol):
    """What every engine of listening has."""

    @property
    def name(self) -> str:
        """Engine, for the banner and logs."""

    async def start(self) -> None:
        """Load; returns when requests are accepted. Raises `EngineSetupError`."""

    async def close(self) -> None:
        """Stop within a few seconds; open requests end with `EngineNotReady`, streams end."""

    def health(self) -> Health:
        """Current state, without waiting."""


class VoiceFrame(Struct, frozen=True, kw_only=True):
    """How surely 32 ms of audio hold speech, 0.0 to 1.0. `pts_ms`: where they begin on the stream's own clock."""

    pts_ms: int
    probability: float


class VoiceDetector(Ear, Protocol):
    """Voice activity of many streams at once: mono s16le at 16 kHz in, a `VoiceFrame` for each 32 ms out.

    A stream begins with its first `feed` or `frames` and lives until `drop`. Its clock starts at 0 and counts every millisecond
    fed, also what was dropped; whoever feeds fills gaps with silence.
    """

    def feed(self, stream_id: str, pcm: bytes) -> None:
        """Audio of any length; half a sample waits for its other half. Never waits, never fails.

        What stands unscored is bounded (2 s); the oldest is dropped and counted, and the model starts anew after the gap.
        """

    def frames(self, stream_id: str) -> AsyncGenerator[VoiceFrame, None]:
        """Scores in order, as they come; one consumer for each stream. Ends after `drop` and `close`.

        While the engine restarts nothing comes, then what is still held is scored with a fresh state.
        """

    def reset(self, stream_id: str, pts_ms: int = 0) -> None:
        """Forget the voice so far and what stands unscored, and set the stream's clock."""

    def drop(self, stream_id: str) -> None:
        """The stream is over; unknown ids are ignored."""

    def dropped_ms(self, stream_id: str) -> int:
        """Audio of this stream that was never scored because the engine fell behind."""


class EndOfTurn(Ear, Protocol):
    """Whether a speaker has finished or only pauses, judged by the sound of what was said."""

    async def score(self, pcm: bytes) -> float:
        """Probability, 0.0 to 1.0, that the speaker has finished. `pcm`: mono s16le at 16 kHz up to now, the pause included; only
        its last 8 s are heard. Meant for about 200 ms after the last speech.

        A cancel frees the engine. Raises `EngineNotReady`, `EngineStalled`, `EngineBusy`.
        """


class Transcription(Struct, frozen=True, kw_only=True):
    """What was said so far in one utterance: mono s16le at 16 kHz, from its start.

    `utterance` is unique among all sessions, and its audio only grows from call to call; `session` shares the engine fairly.
    `language`: BCP 47 primary tag, None to find out. `is_final`: nothing follows. `words`: ask for their times, where there are any.
    """

    utterance: str
    session: str
    pcm: bytes
    language: str | None = None
    is_final: bool = True
    words: bool = False


class HeardWord(Struct, frozen=True, kw_only=True):
    """A word and when it was said, in milliseconds from the utterance's start."""

    text: str
    start_ms: int
    end_ms: int


class Transcript(Struct, frozen=True, kw_only=True):
    """What was understood; no text means that nobody spoke. `language` is None where the engine does not say.

    `rivals`: other readings that the engine finds nearly as likely, the likelier first. `certainty`: the mean log-probability of a
    token, 0 or less; None where the engine does not say.
    """

    text: str
    language: str | None = None
    rivals: tuple[str, ...] = ()
    certainty: float | None = None
    words: tuple[HeardWord, ...] = ()


class Recognizer(Ear, Protocol):
    """Speech to text. Finals run before partials, sessions take turns, and an utterance has one partial in line at most."""

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        """The text; None when a later request of the same utterance, or `cancel`, made it needless.

        A cancel of the caller frees the engine. Raises `EngineNotReady` (keep the audio and ask again), `EngineStalled`, `EngineBusy`,
        `EngineError`.
        """

    def cancel(self, utterance: str) -> None:
        """End all requests of an utterance without waiting and forget what is kept for it; unknown ones are ignored."""


class Ears(Protocol):
    """What it takes to listen. Without `end_of_turn` the words and the silence alone decide when a speaker has finished."""

    @property
    def recognizer(self) -> Recognizer:
        """Speech to text."""

    @property
    def detector(self) -> VoiceDetector:
        """Speech or silence."""

    @property
    def end_of_turn(self) -> EndOfTurn | None:
        """Finished, or only a pause."""
