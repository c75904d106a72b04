"""Reads a pasted vLLM command, as people have it in scripts, compose files and old posts.

Pure. Understands `vllm serve MODEL`, `python -m vllm...` in any spelling, the container image, bare flags; line
continuations, `NAME=value` in front, `--flag=value`, `--no-flag`, `--table.key value`, short flags, `8k`.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from msgspec import Struct

from engine.api import EngineSetupError

_SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-q": "quantization",
    "-cc": "compilation_config",
    "-sc": "speculative_config",
    "-O": "optimization_level",
}
_SWITCH = re.compile(r"(enable|disable|no|use|trust|skip|enforce|async|calculate|return)_")  # such flags take no value
_HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_FACTOR = {"k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}  # as vLLM reads them
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Flag(Struct, frozen=True, kw_only=True):
    """One flag: as `written`, vLLM's name for it, and its value (True for a bare switch)."""

    written: str
    name: str
    value: Any  # Any: JSON, number, text or switch


class CommandLine(Struct, frozen=True, kw_only=True):
    """What stood in the command. `program`: `vllm serve`, or the module behind `python -m`; empty for bare flags."""

    program: str
    model: str
    flags: tuple[Flag, ...]
    environment: dict[str, str]
    leftover: tuple[str, ...] = ()


def parse(text: str) -> CommandLine:
    """Read a pasted command. Raises `EngineSetupError` for text that is none."""
    try:
        words = shlex.split(re.sub(r"\\\s*\n", " ", text.strip()))
    except ValueError as error:
        raise EngineSetupError(f"the command cannot be read ({error}); is a quotation mark missing?") from error
    program, before, after = _split(words)
    environment = dict(word.split("=", 1) for word in before if _ASSIGNMENT.match(word))
    flags, positional = _flags(after)
    named = next((flag.value for flag in flags if flag.name in {"model", "model_tag"}), None)
    model = str(named) if named is not None else (positional[0] if positional else "")
    rest = positional[1:] if named is None else positional
    kept = tuple(flag for flag in flags if flag.name not in {"model", "model_tag"})
    return CommandLine(program=program, model=model, flags=kept, environment=environment, leftover=tuple(rest))


def _split(words: list[str]) -> tuple[str, list[str], list[str]]:
    """Program, the words in front of it, and its arguments."""
    for place, word in enumerate(words):
        lowered = word.lower()
        behind = words[place + 1 :]
        if lowered.rsplit("/", 1)[-1] == "vllm" and behind[:1] == ["serve"]:
            return "vllm serve", words[:place], behind[1:]
        if word == "-m" and behind and behind[0].lower().startswith("vllm"):
            return behind[0], words[:place], behind[1:]
        if "vllm-openai" in lowered:
            return "vllm serve", words[:place], behind
    start = next((place for place, word in enumerate(words) if not _ASSIGNMENT.match(word)), len(words))
    if words[start:] and words[start].startswith("-"):
        return "", words[:start], words[start:]
    raise EngineSetupError(
        f"this is no vLLM command: got {' '.join(words)[:60]!r}, expected `vllm serve MODEL`, `python -m vllm...` or flags"
    )


def _flags(words: list[str]) -> tuple[list[Flag], list[str]]:
    flags: list[Flag] = []
    positional: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or word == "-":
            positional.append(word)
            continue
        written, equals, attached = word.partition("=")
        name, value = _name(written)
        if value is None and equals:
            value = _value(attached)
        elif value is None and place < len(words) and _takes(name, words[place]):
            value = _value(words[place])
            place += 1
        _put(flags, Flag(written=written, name=name, value=True if value is None else value))
    return flags, positional


def _name(written: str) -> tuple[str, Any]:
    """vLLM's name of a flag, and the value that its spelling already holds."""
    if re.fullmatch(r"-O\d", written):
        return "optimization_level", int(written[2])
    if written in _SHORT:
        return _SHORT[written], None
    name = written.lstrip("-").replace("-", "_")
    if name.startswith("no_"):
        return name[3:], False
    return name, None


def _takes(name: str, following: str) -> bool:
    """Whether `following` is the flag's value."""
    if following.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", following):
        return False
    return not _SWITCH.match(name) or following.lower() in {"true", "false"}


def _value(text: str) -> Any:
    if (human := _HUMAN.fullmatch(text)) is not None:
        return int(float(human[1]) * _FACTOR[human[2]])
    if text in {"True", "False"}:
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text


def _put(flags: list[Flag], flag: Flag) -> None:
    """Append; `--table.key value` goes into its table."""
    name, _, key = flag.name.partition(".")
    if not key:
        flags.append(flag)
        return
    for place, known in enumerate(flags):
        if known.name == name and isinstance(known.value, dict):
            flags[place] = Flag(written=known.written, name=name, value={**known.value, key: flag.value})
            return
    flags.append(Flag(written=flag.written.partition(".")[0], name=name, value={key: flag.value}))
