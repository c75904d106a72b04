"""The settings tree: defaults, files, environment, refusals."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config import ConfigError, Settings, check, load, unread
from gateway.speech.markup import rules_from

DEFAULT = Path(__file__).parents[2] / "configs" / "default.toml"
FREE = (
    "personas",
    "keys",
    "backends",
    "llm.vllm",
    "llm.extra",
    "tts.servers",
    "speech.emotion_words",
    "label.notice",
)  # tables of the operator's own names


def keys(kind: Any, prefix: str = "") -> set[str]:  # Any: msgspec's field types
    found = set()
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found |= keys(field.type, f"{prefix}{field.name}.")
        else:
            found.add(prefix + field.name)
    return found


def written(tree: dict[str, Any], prefix: str = "") -> set[str]:
    found = set()
    for name, value in tree.items():
        if isinstance(value, dict) and f"{prefix}{name}" not in FREE:
            found |= written(value, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_the_default_file_says_every_key_and_nothing_else() -> None:
    assert written(tomllib.loads(DEFAULT.read_text("utf-8"))) == keys(Settings)


def test_the_default_file_holds_the_defaults() -> None:
    assert load(DEFAULT, {}) == Settings()


def test_every_key_of_the_default_file_is_explained() -> None:
    explained = True
    for line in DEFAULT.read_text("utf-8").splitlines():
        if line and not line.startswith(("#", "[")):
            assert explained, f"{line!r} has no comment above it"
        explained = bool(line) and not line.startswith("[")


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"server": {"prot": 1}}, "unknown key server.prot; valid here: allow_open"),
        ({"nonsense": 1}, "unknown key nonsense; valid here: asr, backends, barge_in, cache_dir"),
        ({"server": {"port": "a"}}, "server.port: expected `int`, got `str`; got 'a'"),
        ({"server": {"port": 70000}}, "server.port: expected `int` <= 65535; got 70000"),
        ({"personas": {"a": {"instructions": "x", "zz": 1}}}, "unknown key personas.zz; valid here: instructions, language, voice"),
        ({"personas": {"a": {}}}, "personas"),
        ({"llm": {"engine": "gpt"}}, "llm.engine: invalid enum value 'gpt', expected one of auto, fake, llamacpp, "),
        ({"tts": {"engines": ["gpt"]}}, "tts.engines: invalid enum value 'gpt', expected one of"),
        ({"tts": {"edge": {"streams": 0}}}, "tts.edge.streams: expected `int` >= 1; got 0"),
        (
            {"tts": {"servers": {"a": {"url": "http://x/v1", "voices": [], "wrong": 1}}}},
            "unknown key tts.servers.wrong; valid here: connect_s, ",
        ),
        ({"tts": {"servers": {"a": {"url": "http://x/v1", "voices": [{"nam": 1}]}}}}, "tts.servers.voices"),
        ({"server": {"host": "0.0.0.0"}}, "STRETTO_KEYS"),
        ({"server": {"tls_key": "k.pem"}}, "go together"),
        ({"session": {"text_bytes": 70000}}, "must be smaller than session.message_bytes"),
        ({"session": {"context_tokens": 4000}}, "must fit into llm.context_tokens"),
    ],
)
def test_a_wrong_setting_is_told_with_what_would_be_valid(tree: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tree)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("speech", "told"),
    [
        ({"emotion_words": {"gentle": "soft"}}, "speech.emotion_words.gentle: got 'soft', expected one of neutral, happy"),
        ({"emotion_patterns": ["[]"]}, "emotion pattern '[]': expected a mark, {} and a mark"),
    ],
)
def test_a_wrong_mark_is_told(speech: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_from(check({"speech": speech}).speech)
    assert told in str(caught.value)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[server]\nport = 1\nhost = '127.0.0.1'\n", "utf-8")
    environment = {
        "STRETTO_SERVER__PORT": "2",
        "STRETTO_KEYS": "a, b,",
        "STRETTO_CACHE_DIR": "/c",
        "STRETTO_LLM__ENGINE": "llamacpp",
        "STRETTO_TTS__ENGINES": '["espeak"]',
        "HOME": "/root",
    }
    settings = load(file, environment)
    assert (settings.server.port, settings.server.keys, settings.cache_dir) == (2, ("a", "b"), "/c")
    assert (settings.llm.engine, settings.tts.engines) == ("llamacpp", ("espeak",))


def test_the_command_line_overrides_the_environment() -> None:
    assert load(None, {"STRETTO_SERVER__PORT": "2"}, {"server.port": 3}).server.port == 3


def test_a_variable_with_one_underscore_is_told_of() -> None:
    (told,) = unread(
        {"STRETTO_SERVER_PORT": "9000", "STRETTO_SERVER__HOST": "::1", "STRETTO_KEY": "k", "STRETTO_PORT": "tcp://10.0.0.1:80"}
    )
    assert told == "STRETTO_SERVER_PORT is not read; expected STRETTO_SERVER__PORT, with two underscores, for server.port"
    assert "STRETTO_SESSION__MAX_SESSIONS" in unread({"STRETTO_SESSION_MAX_SESSIONS": "2"})[0]


def test_an_unknown_environment_key_stops_the_start() -> None:
    with pytest.raises(ConfigError, match=r"unknown key server\.prot"):
        load(None, {"STRETTO_SERVER__PROT": "2"})


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml"):
        load(tmp_path / "missing.toml", {})
    (tmp_path / "bad.toml").write_text("a = = b", "utf-8")
    with pytest.raises(ConfigError, match="not TOML"):
        load(tmp_path / "bad.toml", {})


def test_a_value_where_a_section_belongs_is_told() -> None:
    with pytest.raises(ConfigError, match="server"):
        load(None, {"STRETTO_SERVER__PORT": "1"}, {"server": 3})


@pytest.mark.parametrize(
    "tree", [{"server": {"keys": ["secret", ""]}}, {"keys": {"a": {"key": "se cret"}}}, {"server": {"keys": ["sécret"]}}]
)
def test_a_key_that_no_header_can_carry_is_told_and_not_shown(tree: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="visible ASCII") as caught:
        check(tree)
    assert "cret" not in str(caught.value)


def test_a_wrong_type_shows_no_key() -> None:
    with pytest.raises(ConfigError, match=r"server.keys: expected") as caught:
        check({"server": {"keys": ["secret", 7]}})
    assert "secret" not in str(caught.value)
