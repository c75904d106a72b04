"""Reads a pasted vLLM command, as people have it in scripts, compose files and old posts.

Pure. What stands around it is for `shell`. Understands `--flag value`, `--flag=value`, `--no-flag`, `--table.key value`, short flags,
beginnings of flags, several values, `8k`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from engine.vllm_args import signatures, values
from engine.vllm_args.shell import find

_SWITCH = re.compile(r"(enable|disable|no|use|trust|skip|enforce|async|calculate|return)_")  # such flags of other releases take no value
_FACTOR = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30, "t": 10**12, "T": 2**40}  # as vLLM reads them
_NEGATIVE = re.compile(r"-\d+(\.\d+)?")


class Flag(Struct, frozen=True, kw_only=True):
    """One flag: as `written`, vLLM's name for it, its value (True for a bare switch), and the `words` that stood for it."""

    written: str
    name: str
    value: Any  # Any: JSON, number, text or switch
    words: tuple[str, ...] = ()


class CommandLine(Struct, frozen=True, kw_only=True):
    """What stood in the command. `program`: `vllm serve`, or the module behind `python -m`; empty for bare flags."""

    program: str
    model: str
    flags: tuple[Flag, ...]
    environment: dict[str, str]
    leftover: tuple[str, ...] = ()


def parse(text: str) -> CommandLine:
    """Read a pasted command. Raises `EngineSetupError` for text that is none."""
    program = find(text)
    flags, positional = _flags(program.words)
    named = next((" ".join(flag.words) for flag in flags if flag.name in {"model", "model_tag"}), None)
    model = named if named is not None else (positional[0] if positional else "")
    rest = positional[1:] if named is None else positional
    kept = tuple(flag for flag in flags if flag.name not in {"model", "model_tag"})
    return CommandLine(program=program.name, model=model, flags=kept, environment=program.environment, leftover=tuple(rest))


def _flags(words: list[str]) -> tuple[list[Flag], list[str]]:
    flags: list[Flag] = []
    positional: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or word in ("-", "--"):
            positional.append(word)
            continue
        written, equals, attached = word.partition("=")
        name, value = _name(written)
        given = [attached] if equals else [written[2:]] if name == "optimization_level" and len(written) > 2 and written[1] == "O" else []
        while not equals and value is None and place < len(words) and _takes(name, words[place], len(given)):
            given.append(words[place])
            place += 1
        _put(flags, Flag(written=written, name=name, value=_value(name, given) if value is None else value, words=tuple(given)))
    return flags, positional


def _name(written: str) -> tuple[str, Any]:
    """vLLM's name of a flag, and the value that its spelling already holds."""
    if re.fullmatch(r"-O\w*", written):
        return "optimization_level", int(written[2]) if written[2:].isdigit() else None
    head, dot, key = written.partition(".")
    short = values.table().short
    if head in short:
        return short[head] + dot + key, None
    name = head.lstrip("-").replace("-", "_")
    known = values.takes(name.removeprefix("no_"))
    if name.startswith("no_") and (known is None or known.kind == "switch"):
        return name.removeprefix("no_"), False
    return (name if _is_known(name) else values.whole(name)) + dot + key, None


def _is_known(name: str) -> bool:
    return name in signatures.names("arguments") | signatures.names("server")


def _takes(name: str, following: str, n_given: int) -> bool:
    """Whether `following` is a value of the flag, which has `n_given` already."""
    if following.startswith("-") and not _NEGATIVE.fullmatch(following):
        return False
    known = values.takes(name)
    if n_given:
        return known is not None and known.many and "." not in name
    is_switch = bool(_SWITCH.match(name)) if known is None else known.kind == "switch"
    return not is_switch or following.lower() in {"true", "false"}


def _value(name: str, words: list[str]) -> Any:
    if not words:
        return True
    known = values.takes(name)
    if known is not None and known.kind in ("text", "choice") and name != "optimization_level":
        read = [_json(word) if word[:1] in "[{" else word for word in words]
    else:
        read = [_plain(word) for word in words]
    return read if known is not None and known.many else read[0]


def _plain(text: str) -> Any:
    if (human := values.HUMAN.fullmatch(text)) is not None:
        return int(float(human[1]) * _FACTOR[human[2]])
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    return float(text) if re.fullmatch(r"\.\d+|\d+\.", text) else _json(text)  # as Python writes numbers, not JSON


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(flags: list[Flag], flag: Flag) -> None:
    """Append; `--table.key value` goes into its table, and `--table.key+ a,b` adds to a list there."""
    name, _, path = flag.name.partition(".")
    if not path:
        flags.append(flag)
        return
    value = flag.value
    if path.endswith("+"):
        path, value = path.removesuffix("+"), [_plain(word) for word in str(value).split(",")]
    for key in reversed(path.split(".")):
        value = {key: value}
    for place, known in enumerate(flags):
        if known.name == name and isinstance(known.value, dict):
            merged = _merged(known.value, value)
            flags[place] = Flag(written=known.written, name=name, value=merged, words=(json.dumps(merged),))
            return
    flags.append(Flag(written=flag.written.partition(".")[0], name=name, value=value, words=(json.dumps(value),)))


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = [key for key in one.keys() & other.keys() if isinstance(one[key], dict) and isinstance(other[key], dict)]
    return one | other | {key: _merged(one[key], other[key]) for key in both}
