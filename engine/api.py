"""The promises that every engine keeps: language models, voices, ears, and what crosses between them and the conversation.

Assumes one event loop per process. Time is in seconds of `loop.time()` where it is a moment, in milliseconds where it is a length of audio.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "tool_calls", "cancelled"]


class EngineError(Exception):
    """A model failed. `kind` is a closed label for metrics; the message never reaches the peer. `retry_after_s`: the service's own wish."""

    kind = "failed"
    retryable = True
    retry_after_s: float | None = None


class EngineNotReady(EngineError):
    """The engine is starting, restarting or dead: try again later."""

    kind = "not_ready"


class EngineStalled(EngineError):
    """No progress within the deadline."""

    kind = "stalled"


class EngineBusy(EngineError):
    """The engine's bounded queue is full."""

    kind = "busy"


class ContextTooLong(EngineError):
    """The prompt does not fit into the model's context."""

    kind = "context_too_long"
    retryable = False


class VoiceUnavailable(EngineError):
    """No voice can speak this text (its script, or an unknown voice)."""

    kind = "no_voice"
    retryable = False


class SpeechCut(EngineError):
    """A voice stopped in the middle of a segment. `spoken`: code points of the text that were surely said, None if unknown."""

    kind = "cut"

    def __init__(self, message: str, spoken: int | None = None) -> None:
        super().__init__(message)
        self.spoken = spoken


class EngineSetupError(Exception):
    """An engine cannot be built: missing package, weights or hardware. The message tells an operator what to do."""


class ToolCall(Struct, frozen=True, kw_only=True):
    """A function call that the model asked for; `arguments` is a JSON object as text."""

    call_id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, kw_only=True):
    """One message of the prompt. `text` is plain text: special tokens in it are never control tokens."""

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None


class Kept(Struct, frozen=True, kw_only=True):
    """Token ids of a conversation's prefix and exactly the text they stand for, so that the prefix cache hits."""

    ids: tuple[int, ...]
    text: str


class Prompt(Struct, frozen=True, kw_only=True):
    """A rendered prompt. Engines without token ids leave `ids` and `text` empty. `reused` counts tokens taken from `Kept`."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()  # Any: JSON schema of the tool's parameters
    ids: tuple[int, ...] = ()
    text: str = ""
    reused: int = 0


class Usage(Struct, frozen=True, kw_only=True):
    """Real token counts of one request."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


class Delta(Struct, frozen=True, kw_only=True):
    """Text from the engine, whole code points. `ids` are its tokens where the engine knows them.

    The last delta of a request carries `finish` and `usage` (its text may be empty).
    """

    text: str
    n_tokens: int = 0
    ids: tuple[int, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    finish: FinishReason | None = None
    usage: Usage | None = None


class Sampling(Struct, frozen=True, kw_only=True):
    """Bounded sampling settings. No `n`, no log-probabilities: both slow down everyone else's first token."""

    max_tokens: int = 512
    temperature: float = 0.7
    top_p: float = 0.95
    seed: int | None = None


class Generation(Struct, frozen=True, kw_only=True):
    """One request. `priority`: lower runs earlier (0 real turn, 10 draft, 20 warm-up)."""

    request_id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    priority: int = 0
    cache_salt: str | None = None


class Health(Struct, frozen=True, kw_only=True):
    """Whether requests are accepted, and a word for the operator."""

    ready: bool
    detail: str


class LanguageModel(Protocol):
    """A chat model that streams text."""

    @property
    def name(self) -> str:
        """Model and engine, for the banner and logs."""

    async def start(self) -> None:
        """Load; returns when requests are accepted. Raises `EngineSetupError`."""

    async def close(self) -> None:
        """Stop within a few seconds; open requests end with `EngineNotReady`."""

    def health(self) -> Health:
        """Current state, without waiting."""

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """Prompt for `messages`; appends to `kept` where the template allows it, else renders anew.

        Raises `ContextTooLong`, `EngineNotReady`.
        """

    def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """Stream the reply. Closing the generator or cancelling its consumer aborts the request.

        Raises `EngineNotReady`, `EngineStalled`, `EngineBusy`, `ContextTooLong`, `EngineError`.
        """

    def cancel(self, request_id: str) -> None:
        """Abort at once, without waiting; unknown and finished ids are ignored. The stream ends with finish `cancelled`."""


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
    """What was understood; no text means that nobody spoke. `language` is None where the engine does not say."""

    text: str
    language: str | None = None
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
