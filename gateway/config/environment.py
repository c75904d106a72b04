"""Which variables of the environment are settings, which belong to somebody else, and which are a slip of the pen.

A setting is `STRETTO_LANGUAGE` for `language` at the top of the tree and `STRETTO_SECTION__KEY` for a key in a section; its value is TOML,
or bare text. What has two underscores and is no setting stops the start. Any other is told and stops nothing: Kubernetes makes such names.
"""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import msgspec

from engine.settings import HttpVoice, SpeechServer
from gateway.config.pairs import ConfigError
from gateway.config.tree import BackendSettings, KeySettings, Persona, Settings

PREFIX = "STRETTO_"
KEYS = "STRETTO_KEYS"  # comma-separated, into server.keys
OTHERS: dict[str, str] = {  # ours, and no settings: who reads them
    "STRETTO_KEY": "`stretto talk`, `bench`, `load` and `replay`: the key that they show",
    "STRETTO_LOAD_KEY": "the client processes of `stretto load`",
    "STRETTO_ENGINE_FOLLOWS_PARENT": "an engine's process: ends with the gateway",
    "STRETTO_PROFILE": "docker/compose.gpu.yaml: a file of configs/",
    "STRETTO_PYTHON": "scripts/setup-*.sh, scripts/test.sh: which Python",
    "STRETTO_TESTS": "scripts/test.sh: which folders",
    "STRETTO_SLOW_TESTS": "tests: the long ones too",
    "STRETTO_VLLM": "scripts/test.sh: 0 leaves vLLM out",
}
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$")  # Kubernetes' own
_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_TABLES: dict[str, Any] = {  # tables of tables: what stands under any name
    "personas": Persona,
    "keys": KeySettings,
    "backends": BackendSettings,
    "servers": SpeechServer,
    "voices": HttpVoice,
}
_ANY_NAME = "NAME"


def apply(tree: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Put the settings of `environment` into `tree`. Raises `ConfigError` for one with two underscores that is none."""
    top = {variable(key): key for key in _plain_top()}
    for name, value in environment.items():
        if name == KEYS:
            put(tree, ["server", "keys"], [key.strip() for key in value.split(",") if key.strip()])
        elif name in top:
            tree[top[name]] = value if name == "STRETTO_CACHE_DIR" else _text(value)
        elif name.startswith(PREFIX) and "__" in name:
            parts = name.removeprefix(PREFIX).lower().split("__")
            if not _is_setting(parts):
                raise ConfigError(f"unknown key {'.'.join(parts)}, from the variable {name}{_advice(parts)}")
            put(tree, parts, _value(value))


def unread(environment: Mapping[str, str], settings: Settings | None = None) -> tuple[str, ...]:
    """A sentence for each variable that looks like a setting and that nobody reads. `settings` name variables that hold keys."""
    named = set(_named(msgspec.to_builtins(settings))) if settings is not None else set()
    read = {KEYS, *map(variable, _plain_top()), *OTHERS, *named}
    return tuple(_told(name) for name, value in environment.items() if name not in read and _is_slip(name, value))


def is_setting(name: str) -> bool:
    """Whether a variable is read as a setting."""
    return name == KEYS or name in map(variable, _plain_top()) or (name.startswith(PREFIX) and "__" in name)


def variable(dotted: str) -> str:
    """The variable of a setting: STRETTO_SERVER__PORT of server.port."""
    return PREFIX + dotted.upper().replace(".", "__")


def all_keys() -> tuple[str, ...]:
    """Every setting, dotted; in a table of tables under NAME."""
    return tuple(_below(Settings, ""))


def near(dotted: str, among: Sequence[str]) -> list[str]:
    """Up to three of `among` that look like `dotted`: first in its section or the one that is spelled like it, then anywhere."""
    section, _, key = dotted.rpartition(".")
    by_section: dict[str, list[str]] = {}
    for each in among:
        by_section.setdefault(each.rpartition(".")[0], []).append(each.rpartition(".")[2])
    for home in [section, *get_close_matches(section, by_section, 1, 0.7)]:
        keys = by_section.get(home, [])
        found = [each for each in keys if key and each.startswith(key)] + get_close_matches(key, keys, 3, 0.7)
        if found:
            return [f"{home}.{each}".lstrip(".") for each in dict.fromkeys(found)][:3]
    return get_close_matches(dotted, among, 3, 0.75)


def put(tree: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Set `keys` in `tree`. Raises `ConfigError` where a value stands in the place of a section."""
    for key in keys[:-1]:
        below = tree.setdefault(key, {})
        if not isinstance(below, dict):
            raise ConfigError(f"{key} is a value, not a section; got {'.'.join(keys)} as well")
        tree = below
    tree[keys[-1]] = value


def fields_of(dotted: str) -> tuple[str, ...]:
    """The keys of a section."""
    kind: Any = Settings
    for part in filter(None, dotted.split(".")):
        kind = _TABLES.get(part) or {f.name: f.type for f in msgspec.structs.fields(kind)}[part]
    return tuple(f.name for f in msgspec.structs.fields(kind))


def _is_slip(name: str, value: str) -> bool:
    if not name.startswith(PREFIX):  # STRETO_KEYS
        first = name.partition("_")[0]
        return "_" in name and bool(get_close_matches(first, ["STRETTO"], 1, 0.85))
    return "__" not in name and not _SERVICE_LINK.search(name) and not _ADDRESS.match(value)


def _told(name: str) -> str:
    if not name.startswith(PREFIX):
        return f"{name} is not read; did you mean {PREFIX}{name.partition('_')[2].lstrip('_')}?"
    wanted = name.removeprefix(PREFIX)
    for key in all_keys():
        if key.upper().replace(".", "_") == wanted:
            return f"{name} is not read; expected {variable(key)}, with two underscores, for {key}"
    of_that_name = [variable(key) for key in all_keys() if key.upper().endswith(f".{wanted}") and _ANY_NAME not in key]
    names = {KEYS: KEYS, **{variable(key).replace("__", "_"): variable(key) for key in all_keys()}}
    found = of_that_name or [names[each] for each in get_close_matches(name, names, 2, 0.8)]
    advice = f"did you mean {' or '.join(found[:3])}?" if found else "no setting has that name; configs/default.toml has them all"
    return f"{name} is not read; {advice}"


def _advice(parts: Sequence[str]) -> str:
    found = near(".".join(parts), all_keys())
    if found:
        return f"; did you mean {' or '.join(variable(each) for each in found)}?"
    if parts[0] in _sections():
        return f"; valid here: {', '.join(sorted(fields_of(parts[0])))}" if parts[0] not in _TABLES else ""
    return f"; the sections are {', '.join(sorted(_sections()))}"


def _is_setting(parts: Sequence[str]) -> bool:
    """Whether the path leads to a key, or into a table that takes any name."""
    kind: Any = Settings
    for place, part in enumerate(parts):
        types = {f.name: f.type for f in msgspec.structs.fields(kind)}
        if part not in types:
            return False
        kind = types[part]
        if typing.get_origin(kind) is dict:
            inner = typing.get_args(kind)[1]
            rest = parts[place + 1 :]
            if not _is_struct(inner) or len(rest) < 2:
                return all(rest)
            return bool(rest[0]) and rest[1] in {f.name for f in msgspec.structs.fields(inner)}
        if not _is_struct(kind):
            return place == len(parts) - 1
    return True


def _below(kind: Any, prefix: str) -> Iterator[str]:
    for field in msgspec.structs.fields(kind):
        inner: Any = field.type
        if typing.get_origin(inner) is dict and _is_struct(typing.get_args(inner)[1]):
            yield from _below(typing.get_args(inner)[1], f"{prefix}{field.name}.{_ANY_NAME}.")
        elif _is_struct(inner):
            yield from _below(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def _plain_top() -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(Settings) if field.type is str)


def _sections() -> set[str]:
    return {field.name for field in msgspec.structs.fields(Settings)} - set(_plain_top())


def _named(value: Any) -> Iterator[str]:
    """Variables that hold a server's key, by every `key_variable` of the tree."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "key_variable" and inner:
                yield inner
            yield from _named(inner)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _text(text: str) -> str:
    """A TOML string in quotes, or the text itself."""
    value = _value(text)
    return value if isinstance(value, str) else text


def _value(text: str) -> Any:
    """A TOML value, or the text itself where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
