"""All settings: one frozen tree, read once at start from TOML, then from the environment, checked whole.

`configs/default.toml` documents every key; a test keeps the two equal. Environment: `STRETTO_SECTION__KEY=value` (TOML
value, or bare text), `STRETTO_KEYS` (comma-separated bearer keys), `STRETTO_CACHE_DIR`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from engine.settings import (
    AsrSettings,
    EngineSettings,
    FakeSettings,
    HttpVoice,
    ListenSettings,
    LlmSettings,
    SpeechServer,
    TtsSettings,
)


class ConfigError(Exception):
    """A setting is wrong. The message names the key, what was got, and what would be valid."""


Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[float, Meta(gt=0)]
PositiveInt = Annotated[int, Meta(gt=0)]


class ServerSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The socket and who may use it."""

    host: str = "127.0.0.1"
    port: Port = 8080
    keys: tuple[str, ...] = ()
    allow_open: bool = False
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    tls_certificate: str = ""
    tls_key: str = ""
    handshakes_per_s: Positive = 500.0
    drain_s: Positive = 20.0
    debug_stamps: bool = False


class SessionSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One conversation's bounds."""

    max_sessions: PositiveInt = 64
    message_bytes: PositiveInt = 65_536
    text_bytes: PositiveInt = 32_768
    messages_per_s: PositiveInt = 100
    idle_s: Positive = 120.0
    handshake_s: Positive = 10.0
    slow_reader_s: Positive = 10.0
    resume_s: Annotated[float, Meta(ge=0)] = 60.0
    lead_ms: Annotated[int, Meta(ge=100, le=10_000)] = 1000
    context_tokens: PositiveInt = 3000


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


class Persona(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named character that `session.start` may ask for."""

    instructions: str
    language: str = ""
    voice: str = ""


class KeySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bearer key with rights of its own. `persona`: its clients speak as this one; the others: whether they may give theirs."""

    key: Annotated[str, Meta(min_length=1)]
    persona: str = ""
    instructions: bool = True
    tools: bool = True


class BackendSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A language model for `stretto bench --backends`, and what it costs. `llm`: keys of [llm] that differ.

    Prices in one currency: a million tokens read anew (`input_price`), read from the cache (`cached_price`, None: as the others) and
    written (`output_price`); an hour of one GPU (`gpu_hour_price`), of which `gpus` are used.
    """

    llm: dict[str, Any] = {}  # Any: TOML values, checked as [llm]
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


Probability = Annotated[float, Meta(ge=0, le=1)]


class EndpointingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When a person has begun to speak, and when they have finished; `gateway/endpointing` says how the waits are moved."""

    speech_probability: Probability = 0.5
    silence_probability: Probability = 0.35
    start_ms: PositiveInt = 64
    min_speech_ms: PositiveInt = 96
    likely_ms: PositiveInt = 32
    score_ms: PositiveInt = 96
    sure_score: Probability = 0.8
    sure_ms: PositiveInt = 192
    unsure_ms: PositiveInt = 800
    longest_ms: PositiveInt = 1500
    longest_utterance_s: Annotated[float, Meta(gt=1, le=120)] = 30.0


class HearingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of the microphone, and how often and how long it is read."""

    preroll_ms: Annotated[int, Meta(ge=0, le=2000)] = 320
    gap_ms: PositiveInt = 200
    partial_ms: PositiveInt = 700
    score_s: Positive = 1.0
    final_s: Positive = 10.0
    merge_ms: Annotated[int, Meta(ge=0, le=10_000)] = 1500
    warm_up_after_s: Positive = 30.0


class BargeInSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stops a reply that is being spoken, and what does not."""

    backchannels: tuple[str, ...] = (
        "mhm", "mm", "mmm", "hmm", "hm", "uh huh", "uhuh", "uh-huh", "mm-hmm", "yeah", "yep", "yes", "ok", "okay", "right", "sure", "i see",
        "oh", "ah", "aha", "wow", "cool", "nice", "got it", "嗯", "嗯嗯", "对", "对对", "对的", "是", "是的", "好", "好的",
        "哦", "噢", "啊", "行", "嘿", "哈哈",
    )  # fmt: skip
    hold_s: Positive = 6.0
    echo_guard: bool = True


class SpeculationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Replies begun before the end of an utterance is sure."""

    enabled: bool = True
    max_drafts: PositiveInt = 16
    max_replies: PositiveInt = 64
    max_restarts: Annotated[int, Meta(ge=0, le=20)] = 3


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole tree."""

    cache_dir: str = "~/.cache/stretto"
    language: str = "en"
    instructions: str = "You are a friendly voice assistant. Answer in one to three short spoken sentences, without lists or markup."
    server: ServerSettings = ServerSettings()
    session: SessionSettings = SessionSettings()
    turn: TurnSettings = TurnSettings()
    speech: SpeechSettings = SpeechSettings()
    llm: LlmSettings = LlmSettings()
    tts: TtsSettings = TtsSettings()
    asr: AsrSettings = AsrSettings()
    listen: ListenSettings = ListenSettings()
    log: LogSettings = LogSettings()
    fake: FakeSettings = FakeSettings()
    realtime: RealtimeSettings = RealtimeSettings()
    endpointing: EndpointingSettings = EndpointingSettings()
    hearing: HearingSettings = HearingSettings()
    barge_in: BargeInSettings = BargeInSettings()
    speculation: SpeculationSettings = SpeculationSettings()
    personas: dict[str, Persona] = {}
    keys: dict[str, KeySettings] = {}
    backends: dict[str, BackendSettings] = {}

    @property
    def cache_path(self) -> Path:
        """Where weights, compile caches and certificates live."""
        return Path(self.cache_dir).expanduser()

    def engine_settings(self) -> EngineSettings:
        """What the engines are built from."""
        return EngineSettings(cache_path=self.cache_path, llm=self.llm, tts=self.tts, asr=self.asr, listen=self.listen, fake=self.fake)


def load(path: Path | None, environment: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from defaults, then the file, then the environment, then the command line (`section.key` overrides).

    Raises `ConfigError`.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        tree = _read(path)
    _apply_environment(tree, os.environ if environment is None else environment)
    for dotted, value in (overrides or {}).items():
        _put(tree, dotted.split("."), value)
    return check(tree)


def check(tree: Mapping[str, Any]) -> Settings:
    """A settings tree from plain values. Raises `ConfigError` naming the key, the value's fault, and the valid ones."""
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(_explain(str(error), tree)) from error
    _check_pairs(settings)
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the settings file {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error


def _apply_environment(tree: dict[str, Any], environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if name == "STRETTO_CACHE_DIR":
            tree["cache_dir"] = value
        elif name == "STRETTO_KEYS":
            _put(tree, ["server", "keys"], [key.strip() for key in value.split(",") if key.strip()])
        elif name.startswith("STRETTO_") and "__" in name:
            _put(tree, name.removeprefix("STRETTO_").lower().split("__"), _toml_value(value))


def _toml_value(text: str) -> Any:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tree: dict[str, Any], keys: list[str], value: Any) -> None:
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{key} is a value, not a section; got {'.'.join(keys)} as well")
        tree = below
    tree[keys[-1]] = value


def _explain(message: str, tree: Mapping[str, Any]) -> str:
    """msgspec's message with the dotted key, and the valid keys where an unknown one was used."""
    fault, _, path = message.partition(" - at `$")
    section = re.sub(r"\[[^]]*\]", "", path.rstrip("`")).lstrip(".")
    if fault.startswith("Object contains unknown field"):
        unknown = fault.split("`")[1]
        valid = ", ".join(sorted(_fields_of(section)))
        return f"unknown key {f'{section}.' if section else ''}{unknown}; valid here: {valid}"
    if fault.startswith("Invalid enum value"):
        return f"{section}: {fault[:1].lower()}{fault[1:]}, expected one of {', '.join(sorted(_choices_of(section)))}"
    got: Any = tree
    for part in section.split("."):
        got = got.get(part) if isinstance(got, Mapping) else None
    is_secret = section.rpartition(".")[2] in ("key", "keys")
    return f"{section}: {fault[:1].lower()}{fault[1:]}" + ("" if is_secret else f"; got {got!r}")


def _fields_of(section: str) -> tuple[str, ...]:
    named = {
        "personas": Persona,
        "keys": KeySettings,
        "backends": BackendSettings,
        "servers": SpeechServer,
        "voices": HttpVoice,
    }  # tables of tables
    kind: Any = Settings
    for part in filter(None, section.split(".")):
        kind = named.get(part) or {f.name: f.type for f in msgspec.structs.fields(kind)}[part]
    return tuple(f.name for f in msgspec.structs.fields(kind))


def _choices_of(section: str) -> tuple[str, ...]:
    """The words that a key takes; the key's type is a `Literal`, or a tuple of them."""
    kind: Any = Settings
    for part in section.split("."):
        kind = {f.name: f.type for f in msgspec.structs.fields(kind)}[part]
    choices = get_args(kind)
    return get_args(choices[0]) or choices


_KEY = re.compile(r"[\x21-\x7e]+")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def _check_pairs(settings: Settings) -> None:
    """Refuse values that are valid alone and impossible together."""
    server, session = settings.server, settings.session
    if server.host not in LOOPBACK and not server.keys and not settings.keys and not server.allow_open:
        raise ConfigError(
            f"server.host is {server.host!r}, reachable from other machines, and server.keys is empty: set STRETTO_KEYS, "
            "or server.allow_open = true to serve anyone"
        )
    if bool(server.tls_certificate) != bool(server.tls_key):
        raise ConfigError("server.tls_certificate and server.tls_key go together; got only one of them")
    if session.text_bytes >= session.message_bytes:
        raise ConfigError(f"session.text_bytes ({session.text_bytes}) must be smaller than session.message_bytes ({session.message_bytes})")
    _check_keys((*server.keys, *(key.key for key in settings.keys.values())))
    _check_waits(settings.endpointing)
    for name, key in settings.keys.items():
        if key.persona and key.persona not in settings.personas:
            known = ", ".join(sorted(settings.personas)) or "none is configured"
            raise ConfigError(f"keys.{name}.persona is {key.persona!r}; expected one of the personas: {known}")
    if session.context_tokens + settings.turn.max_tokens > settings.llm.context_tokens:
        raise ConfigError(
            f"session.context_tokens ({session.context_tokens}) + turn.max_tokens ({settings.turn.max_tokens}) must fit into "
            f"llm.context_tokens ({settings.llm.context_tokens})"
        )


def _check_keys(keys: Sequence[str]) -> None:
    """They travel in headers. An empty one, as a template without its value leaves it, would let everyone in. No message shows one."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ConfigError(f"a key in server.keys or [keys] has {len(key)} characters; expected one or more of visible ASCII, no spaces")


def _check_waits(waits: EndpointingSettings) -> None:
    if not waits.likely_ms <= waits.score_ms <= waits.sure_ms <= waits.unsure_ms <= waits.longest_ms:
        raise ConfigError(
            f"endpointing.likely_ms ({waits.likely_ms}), score_ms ({waits.score_ms}), sure_ms ({waits.sure_ms}), "
            f"unsure_ms ({waits.unsure_ms}) and longest_ms ({waits.longest_ms}) must not get smaller in this order"
        )
    if waits.silence_probability > waits.speech_probability:
        raise ConfigError(
            f"endpointing.silence_probability ({waits.silence_probability}) must not be above "
            f"endpointing.speech_probability ({waits.speech_probability})"
        )
