"""Settings from TOML, the environment and the command line, each fault named by its key.

Environment: `STRETTO_SECTION__KEY=value` (TOML value, or bare text), `STRETTO_KEYS` (comma-separated bearer keys), `STRETTO_CACHE_DIR`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from engine.settings import HttpVoice, SpeechServer
from gateway.config.pairs import ConfigError, check_pairs
from gateway.config.tree import BackendSettings, KeySettings, Persona, Settings


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
    check_pairs(settings)
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


def unread(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Of each variable that looks like a setting and is read by nobody (one underscore instead of two): what was expected.

    None stops a start: Kubernetes makes such names of its services, STRETTO_METRICS_PORT of one called stretto-metrics.
    """
    kinds = {f.name: f.type for f in msgspec.structs.fields(Settings) if isinstance(f.type, type) and issubclass(f.type, msgspec.Struct)}
    keys = [(section, f.name) for section, kind in kinds.items() for f in msgspec.structs.fields(kind)]
    return tuple(
        f"{name} is not read; expected STRETTO_{section.upper()}__{key.upper()}, with two underscores, for {section}.{key}"
        for section, key in keys
        if (name := f"STRETTO_{section}_{key}".upper()) in environment
    )


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
    is_secret = section.rpartition(".")[2] in ("key", "keys", "store_url")
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
