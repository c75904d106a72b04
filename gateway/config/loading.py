"""Settings from TOML, the environment and the command line, each fault named by its key.

Which variables are settings: `environment`.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

from gateway.config.environment import all_keys, apply, fields_of, near, put
from gateway.config.pairs import ConfigError, check_pairs
from gateway.config.tree import Settings


def load(path: Path | None, environment: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from defaults, then the file, then the environment, then the command line (`section.key` overrides).

    Raises `ConfigError`.
    """
    tree: dict[str, Any] = {}
    if path is not None:
        tree = _read(path)
    apply(tree, os.environ if environment is None else environment)
    for dotted, value in (overrides or {}).items():
        put(tree, dotted.split("."), value)
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


def _explain(message: str, tree: Mapping[str, Any]) -> str:
    """msgspec's message with the dotted key, and the valid keys where an unknown one was used."""
    fault, _, path = message.partition(" - at `$")
    section = re.sub(r"\[[^]]*\]", "", path.rstrip("`")).lstrip(".")
    if fault.startswith("Object contains unknown field"):
        unknown = fault.split("`")[1]
        valid, whole = ", ".join(sorted(fields_of(section))), f"{section}.{unknown}".lstrip(".")
        close = near(whole, all_keys())
        return f"unknown key {whole}; valid here: {valid}" + (f"; did you mean {' or '.join(close)}?" if close else "")
    if fault.startswith("Invalid enum value"):
        return f"{section}: {fault[:1].lower()}{fault[1:]}, expected one of {', '.join(sorted(_choices_of(section)))}"
    got: Any = tree
    for part in section.split("."):
        got = got.get(part) if isinstance(got, Mapping) else None
    is_secret = section.rpartition(".")[2] in ("key", "keys", "store_url")
    return f"{section}: {fault[:1].lower()}{fault[1:]}" + ("" if is_secret else f"; got {got!r}")


def _choices_of(section: str) -> tuple[str, ...]:
    """The words that a key takes; the key's type is a `Literal`, or a tuple of them."""
    kind: Any = Settings
    for part in section.split("."):
        kind = {f.name: f.type for f in msgspec.structs.fields(kind)}[part]
    choices = get_args(kind)
    return get_args(choices[0]) or choices
