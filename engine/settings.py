"""What an operator may set about the engines: five frozen sections of the settings tree, and where their files live.

Kept here, because the engines are built from them and may not import the gateway; `gateway/config` puts them into its tree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

PositiveInt = Annotated[int, Meta(gt=0)]


class LlmSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which language model answers. From `endpoints` on: chat servers, for `openai`.

    `key_variable`: the environment variable that holds their key. `extra`: goes into every request as it is.
    """

    engine: Literal["auto", "vllm", "vllm-serve", "llamacpp", "openai", "fake"] = "auto"
    model: str = ""
    context_tokens: PositiveInt = 4096
    threads: Annotated[int, Meta(ge=0)] = 0
    slots: PositiveInt = 4
    endpoints: tuple[str, ...] = ()
    dialect: Literal["openai", "vllm"] = "openai"
    key_variable: str = ""
    connect_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    first_s: Annotated[float, Meta(gt=0, le=120)] = 8.0
    next_s: Annotated[float, Meta(gt=0, le=120)] = 8.0
    extra: dict[str, Any] = {}  # Any: JSON of the servers' own request fields
    vllm: dict[str, Any] = {}  # Any: vLLM's own engine arguments, checked by engine/vllm_args.py


Seconds = Annotated[float, Meta(gt=0, le=120)]
Streams = Annotated[int, Meta(ge=1, le=256)]


class EdgeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The edge voice service. `first_audio_s` runs from the request to the first sound and counts the connection; `next_s` between
    two messages. `streams` at once, `waiting` more in line. `spare_s`: how long a connection opened ahead is kept."""

    connect_s: Seconds = 2.0
    first_audio_s: Seconds = 4.0
    next_s: Seconds = 2.5
    streams: Streams = 8
    waiting: Annotated[int, Meta(ge=0, le=256)] = 16
    open_ahead: bool = True
    spare_s: Seconds = 20.0
    proxy: str = ""


class HttpVoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A voice of a speech server: the server's own `name` for it, and what it speaks, its own language first."""

    name: str
    languages: tuple[str, ...] = ("en",)


class SpeechServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server with `/v1/audio/speech`. `url` ends in `/v1`.

    `key_variable`: the environment variable that holds its key. `pcm_rate_hz`: of headerless PCM (OpenAI's is 24,000). `instructions`:
    the model reads feelings in words. `style_field`: the request field that takes the voice's own style name. `extra`: further fields of
    the request. `first_audio_s` runs from the request to the first sound, `next_s` between two pieces.
    """

    url: str
    voices: tuple[HttpVoice, ...]
    model: str = ""
    key_variable: str = ""
    format: Literal["pcm", "wav", "mp3", "opus"] = "pcm"
    pcm_rate_hz: Annotated[int, Meta(ge=8_000, le=96_000)] = 24_000
    instructions: bool = False
    style_field: str = ""
    extra: dict[str, Any] = {}  # Any: the server's own fields, passed on
    connect_s: Seconds = 2.0
    first_audio_s: Seconds = 5.0
    next_s: Seconds = 3.0
    streams: Streams = 8
    waiting: Annotated[int, Meta(ge=0, le=256)] = 16


class TtsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which voices speak, in order of preference; `http` stands for all of `servers`.

    `kokoro_voices`: names of packaged ones. `rest_s`: how long an engine that failed is left alone at first. `voice_table`: a file like
    `configs/voices.toml`, which is the default. `phrases`: what is kept on disk once it was spoken.
    """

    engines: tuple[Literal["edge", "http", "kokoro", "piper", "espeak", "fake"], ...] = ("piper", "espeak")
    voice: str = ""
    piper_voices: tuple[str, ...] = ()
    kokoro_voices: tuple[str, ...] = ("af_heart", "bf_emma", "am_michael")
    threads: PositiveInt = 1
    rest_s: Seconds = 20.0
    voice_table: str = ""
    phrases: tuple[str, ...] = ()
    edge: EdgeSettings = EdgeSettings()
    servers: dict[str, SpeechServer] = {}


class AsrSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engine turns speech into text. `auto`: whisper where its extra is installed and a real model answers, else none.

    `model`: a CTranslate2 folder of a Whisper model for `whisper` ("" is the packaged base model), else the server's name of it.
    `languages`: those that are told apart where none is set; empty means all. `url`: of the server, ending in `/v1`.
    """

    engine: Literal["auto", "whisper", "openai", "vllm", "fake", "off"] = "auto"
    model: str = ""
    languages: tuple[str, ...] = ()
    threads: Annotated[int, Meta(ge=0)] = 0
    parallel: PositiveInt = 1
    url: str = ""
    api_key: str = ""
    connect_s: Annotated[float, Meta(gt=0, le=60)] = 2.0
    answer_s: Annotated[float, Meta(gt=0, le=120)] = 10.0


class ListenSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which engines tell speech from silence, and a finished speaker from a pause. Used only where speech becomes text at all."""

    vad: Literal["silero", "fake"] = "silero"
    end_of_turn: Literal["smart-turn", "off", "fake"] = "smart-turn"
    threads: PositiveInt = 1


class FakeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timings of the scripted engines (tests and benches only)."""

    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    reply: str = ""
    tts_first_chunk_ms: float = 60.0
    tts_rtf: float = 0.1
    heard: tuple[str, ...] = ("What is down there in the sea?",)
    asr_final_ms: float = 80.0
    asr_partial_ms: float = 80.0
    end_of_turn: tuple[float, ...] = (0.9,)
    end_of_turn_ms: float = 20.0


class EngineSettings(Struct, frozen=True, kw_only=True):
    """All that `engine/build.py` needs to know. `must_isolate`: some clients' prompts may not share a cache with others'."""

    cache_path: Path
    must_isolate: bool = False
    llm: LlmSettings = LlmSettings()
    tts: TtsSettings = TtsSettings()
    asr: AsrSettings = AsrSettings()
    listen: ListenSettings = ListenSettings()
    fake: FakeSettings = FakeSettings()
