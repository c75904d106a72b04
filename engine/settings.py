"""What an operator may set about the engines: three frozen sections of the settings tree, and where their files live.

Kept here, because the engines are built from them and may not import the gateway; `gateway/config.py` puts them into its tree.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

PositiveInt = Annotated[int, Meta(gt=0)]


class LlmSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which language model answers."""

    engine: Literal["auto", "vllm", "llamacpp", "fake"] = "auto"
    model: str = ""
    context_tokens: PositiveInt = 4096
    threads: Annotated[int, Meta(ge=0)] = 0
    slots: PositiveInt = 4
    vllm: dict[str, Any] = {}  # Any: vLLM's own engine arguments, checked by engine/vllm_args.py


class TtsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which voices speak, in order of preference."""

    engines: tuple[Literal["piper", "espeak", "fake"], ...] = ("piper", "espeak")
    voice: str = ""
    piper_voices: tuple[str, ...] = ()
    threads: PositiveInt = 1


class FakeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Timings of the scripted engines (tests and benches only)."""

    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    reply: str = ""
    tts_first_chunk_ms: float = 60.0
    tts_rtf: float = 0.1


class EngineSettings(Struct, frozen=True, kw_only=True):
    """All that `engine/build.py` needs to know."""

    cache_path: Path
    llm: LlmSettings = LlmSettings()
    tts: TtsSettings = TtsSettings()
    fake: FakeSettings = FakeSettings()
