"""The settings tree: frozen structs, one a section. `configs/default.toml` documents every key; a test keeps the two equal."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from engine.settings import (
    AsrSettings,
    EngineSettings,
    FakeSettings,
    ListenSettings,
    LlmSettings,
    TtsSettings,
)
from gateway.config.watching import CaptureSettings, LabelSettings, ModerationSettings, TracingSettings, UsageSettings

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[float, Meta(gt=0)]
Limit = Annotated[int, Meta(ge=0)]
PositiveInt = Annotated[int, Meta(gt=0)]


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The socket and who may use it."""

    host: str = "127.0.0.1"
    port: Port = 8080
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    keys: tuple[str, ...] = ()
    allow_open: bool = False
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tls_certificate: str = ""
    tls_key: str = ""
    ticket_s: Annotated[float, Meta(ge=1, le=600)] = 60.0
    trusted_proxies: tuple[str, ...] = ()
    handshakes_per_s: Positive = 500.0
    sockets_per_address: PositiveInt = 2000
    request_s: Positive = 10.0
    failed_keys_per_min: PositiveInt = 60
    drain_s: Positive = 20.0
    debug_stamps: bool = False


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One conversation's bounds."""

    max_sessions: PositiveInt = 64
    reserve_share: Annotated[float, Meta(ge=0, le=1)] = 0.1
    message_bytes: PositiveInt = 65_536
    text_bytes: PositiveInt = 32_768
    messages_per_s: PositiveInt = 100
    idle_s: Positive = 120.0
    handshake_s: Positive = 10.0
    slow_reader_s: Positive = 10.0
    resume_s: Annotated[float, Meta(ge=0)] = 60.0
    store_url: str = ""
    store_prefix: Annotated[str, Meta(max_length=64)] = "stretto:"
    lead_ms: Annotated[int, Meta(ge=100, le=10_000)] = 1000
    context_tokens: PositiveInt = 3000


class HistorySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to a conversation that outgrows `session.context_tokens`; `trim_at` and `trim_to` are shares of them."""

    trim_at: Annotated[float, Meta(ge=0.3, le=1)] = 0.9
    trim_to: Annotated[float, Meta(ge=0.1, le=0.95)] = 0.6
    summarize: bool = False
    summary_tokens: Annotated[int, Meta(ge=32, le=1024)] = 160
    summary_s: Annotated[float, Meta(gt=0, le=120)] = 20.0


class WarmUpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept in the engine's prefix cache beside the personas, how often it is read again, and with how many replies on their way."""

    instructions: tuple[str, ...] = ()
    every_s: Annotated[float, Meta(ge=0, le=3600)] = 60.0
    max_replies: PositiveInt = 8


class TurnSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply's bounds."""

    max_tokens: PositiveInt = 256
    temperature: Annotated[float, Meta(ge=0, le=2)] = 0.7
    top_p: Annotated[float, Meta(gt=0, le=1)] = 0.95
    first_delta_s: Positive = 20.0
    next_delta_s: Positive = 10.0
    first_chunk_s: Positive = 10.0
    pending_commit_ms: PositiveInt = 150
    text_delta_ms: PositiveInt = 30
    heard_wait_s: Positive = 2.0
    tool_result_s: Positive = 30.0


class SpeechSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a reply becomes segments."""

    early_first_segment: bool = True
    emotion: bool = False
    emotion_patterns: tuple[str, ...] = ("[{}]",)
    emotion_words: dict[str, str] = {}
    emotion_emoji: bool = True
    stage_directions: bool = True
    starts_in_reasoning: bool = False
    code_notice: str = ""


class LogSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is logged; never content."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class MetricsSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where Prometheus reads, and with which key."""

    host: str = ""
    port: Port = 9464
    key: str = ""


class Persona(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named character that `session.start` may ask for."""

    instructions: str
    language: str = ""
    voice: str = ""


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bearer key with rights of its own. `persona`: its clients speak as this one; `instructions`, `tools`: whether they may give theirs.

    `isolate`: their prompts share the engine's prefix cache with nobody else's. `capture`: their conversations are kept where there is
    a folder for it. `weight`: their share of the places where several keys want them. The others are what they may use, 0 without a bound.
    """

    key: Annotated[str, Meta(min_length=1)]
    persona: str = ""
    instructions: bool = True
    tools: bool = True
    isolate: bool = False
    capture: bool = False
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    sessions: Limit = 0
    turns_per_min: Limit = 0
    tokens_per_h: Limit = 0
    tokens_per_day: Limit = 0
    audio_s_per_h: Limit = 0


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language model for `stretto bench --backends`, and what it costs. `llm`: keys of [llm] that differ.

    Prices in one currency: a million tokens read anew (`input_price`), read from the cache (`cached_price`, None: as the others) and
    written (`output_price`); an hour of one GPU (`gpu_hour_price`), of which `gpus` are used. `python`: the interpreter that its gateway
    runs in, where its engine is installed elsewhere. `note`: what readers of the table must know.
    """

    llm: dict[str, Any] = {}  # Any: TOML values, checked as [llm]
    python: str = ""
    note: str = ""
    input_price: Annotated[float, Meta(ge=0)] = 0.0
    cached_price: Annotated[float, Meta(ge=0)] | None = None
    output_price: Annotated[float, Meta(ge=0)] = 0.0
    gpu_hour_price: Annotated[float, Meta(ge=0)] = 0.0
    gpus: Annotated[int, Meta(ge=0)] = 1


class RealtimeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The OpenAI Realtime door."""

    models: tuple[str, ...] = ("stretto", "gpt-realtime", "gpt-realtime-mini", "gpt-4o-realtime-preview")
    message_bytes: Annotated[int, Meta(gt=0, le=15 * 1024 * 1024)] = 1024 * 1024
    idle_s: Positive = 3600.0
    client_secret_s: Annotated[float, Meta(ge=10, le=7200)] = 60.0


Probability = Annotated[float, Meta(ge=0, le=1)]


class EndpointingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a person has begun to speak, and when they have finished; `gateway/endpointing` says how the waits are moved."""

    speech_probability: Probability = 0.5
    silence_probability: Probability = 0.35
    start_ms: PositiveInt = 64
    min_speech_ms: PositiveInt = 96
    likely_ms: PositiveInt = 32
    score_ms: PositiveInt = 96
    sure_score: Probability = 0.75
    sure_ms: PositiveInt = 192
    unsure_ms: PositiveInt = 800
    longest_ms: PositiveInt = 1500
    longest_utterance_s: Annotated[float, Meta(gt=1, le=300)] = 90.0


class HearingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of the microphone, and how often and how long it is read."""

    preroll_ms: Annotated[int, Meta(ge=0, le=2000)] = 320
    gap_ms: PositiveInt = 200
    partial_ms: PositiveInt = 700
    score_s: Positive = 1.0
    final_s: Positive = 10.0
    merge_ms: Annotated[int, Meta(ge=0, le=10_000)] = 1500
    warm_up_after_s: Positive = 30.0
    silence_text: Annotated[str, Meta(min_length=1, max_length=500)] = "..."


class BargeInSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stops a reply that is being spoken, and what does not."""

    backchannels: tuple[str, ...] = (
        "mhm", "mm", "mmm", "hmm", "hm", "uh huh", "uhuh", "uh-huh", "mm-hmm", "yeah", "yep", "yes", "ok", "okay", "right", "sure", "i see",
        "oh", "ah", "aha", "wow", "cool", "nice", "got it", "嗯", "嗯嗯", "对", "对对", "对的", "是", "是的", "好", "好的",
        "哦", "噢", "啊", "行", "嘿", "哈哈",
    )  # fmt: skip
    hold_s: Positive = 6.0
    partial_ms: PositiveInt = 350
    echo_guard: bool = True


class SpeculationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replies begun before the end of an utterance is sure."""

    enabled: bool = True
    max_drafts: PositiveInt = 16
    max_replies: PositiveInt = 64
    max_restarts: Annotated[int, Meta(ge=0, le=20)] = 3


class SheddingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When this process takes nobody new, and what it gives up before that; `gateway/shedding.py` says how."""

    lag_ms: Annotated[float, Meta(ge=0)] = 25.0
    ttft_ms: Annotated[float, Meta(ge=0)] = 5000.0
    ease_share: Annotated[float, Meta(gt=0, le=1)] = 0.6
    window_s: Annotated[float, Meta(ge=1, le=60)] = 5.0
    calm_s: Annotated[float, Meta(ge=0, le=600)] = 5.0


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole tree."""

    cache_dir: str = "~/.cache/stretto"
    language: str = "en"
    instructions: str = "You are a friendly voice assistant. Answer in one to three short spoken sentences, without lists or markup."
    server: ServerSettings = ServerSettings()
    session: SessionSettings = SessionSettings()
    history: HistorySettings = HistorySettings()
    warm_up: WarmUpSettings = WarmUpSettings()
    turn: TurnSettings = TurnSettings()
    speech: SpeechSettings = SpeechSettings()
    llm: LlmSettings = LlmSettings()
    tts: TtsSettings = TtsSettings()
    asr: AsrSettings = AsrSettings()
    listen: ListenSettings = ListenSettings()
    log: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    fake: FakeSettings = FakeSettings()
    realtime: RealtimeSettings = RealtimeSettings()
    endpointing: EndpointingSettings = EndpointingSettings()
    hearing: HearingSettings = HearingSettings()
    barge_in: BargeInSettings = BargeInSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    shedding: SheddingSettings = SheddingSettings()
    tracing: TracingSettings = TracingSettings()
    capture: CaptureSettings = CaptureSettings()
    usage: UsageSettings = UsageSettings()
    moderation: ModerationSettings = ModerationSettings()
    label: LabelSettings = LabelSettings()
    personas: dict[str, Persona] = {}
    keys: dict[str, KeySettings] = {}
    backends: dict[str, BackendSettings] = {}

    @property
    def cache_path(self) -> Path:
        """Where weights, compile caches and certificates live."""
        return Path(self.cache_dir).expanduser()

    def engine_settings(self) -> EngineSettings:
        """What the engines are built from."""
        return EngineSettings(
            cache_path=self.cache_path,
            must_isolate=any(key.isolate for key in self.keys.values()),
            llm=self.llm,
            tts=self.tts,
            asr=self.asr,
            listen=self.listen,
            fake=self.fake,
        )
