"""What an operator may set about the engines: five frozen sections of the settings tree, and where their files live.

Kept here, because the engines are built from them and may not import the gateway; `gateway/config.py` puts them into its tree.
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


class TtsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which voices speak, in order of preference."""

    engines: tuple[Literal["piper", "espeak", "fake"], ...] = ("piper", "espeak")
    voice: str = ""
    piper_voices: tuple[str, ...] = ()
    threads: PositiveInt = 1


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
    """All that `engine/build.py` needs to know."""

    cache_path: Path
    llm: LlmSettings = LlmSettings()
    tts: TtsSettings = TtsSettings()
    asr: AsrSettings = AsrSettings()
    listen: ListenSettings = ListenSettings()
    fake: FakeSettings = FakeSettings()
