"""What each flag of vLLM's server takes: a small table, read out of vLLM's own parser by `scripts/vllm_values.py`.

Decides whether a value is one; whether it is a good one is for `rules`. The table is of one release: a flag that it lacks takes anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Any, Literal

import msgspec
from msgspec import Struct

from engine.vllm_args import signatures
from engine.vllm_args.options import LOADERS

HUMAN = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
SHELL = re.compile(r"\$\w|\$\{|\$\(|`|\{\{|^<.+>$")  # filled in before vLLM sees it


class Takes(Struct, frozen=True, kw_only=True):
    """`words`: taken beside numbers. `human`: 8k too. `list`: JSON other than an object too. `no`: a switch with a --no- form."""

    kind: Literal["switch", "int", "float", "choice", "json", "text"]
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    human: bool = False
    list: bool = False
    many: bool = False
    no: bool = False


class Table(Struct, frozen=True, kw_only=True):
    """`short`: other spellings of a flag, and its name."""

    release: str
    flags: dict[str, Takes]
    short: dict[str, str]


# What vLLM finds out after its parser: the smallest and the largest value that can be meant. Source: vLLM 0.32, its config classes.
_RANGES: dict[str, tuple[float, float]] = {
    "tensor_parallel_size": (1, 1024),
    "pipeline_parallel_size": (1, 1024),
    "data_parallel_size": (1, 1024),
    "max_num_seqs": (1, 1_000_000),
    "max_num_batched_tokens": (1, 100_000_000),
    "max_model_len": (-1, 100_000_000),
    "block_size": (1, 4096),
    "stream_interval": (1, 1_000_000),
    "gpu_memory_utilization": (0.01, 1),
    "port": (0, 65_535),
}
_OPTIONS = frozenset({"speculative_config", "load_format"})  # `options` knows more about them
_ALIASES = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32"}
_MOST_SHOWN = 12
_LEVELS = ("0", "1", "2", "3")  # its parser takes anything here


@cache
def table() -> Table:
    """The whole table."""
    return msgspec.json.decode(resources.files("engine.vllm_args").joinpath("values.json").read_bytes(), type=Table)


def takes(name: str) -> Takes | None:
    """What flag `name` takes; None where that is not known."""
    return table().flags.get(name)


def fault(name: str, words: Sequence[str], *, is_off: bool = False) -> str | None:
    """What is wrong with the `words` given to a flag, got and expected; None where nothing is. `is_off`: written as --no-..."""
    known = takes(name)
    if known is None or any(SHELL.search(word) for word in words):
        return None
    if known.kind == "switch":
        if is_off and not known.no:
            return "has no --no- form"
        return f"takes no value; got {' '.join(words)!r}, expected the flag alone" if words else None
    if not words:
        return f"needs a value; got none, expected {expected(name)}"
    return next((f"got {word!r}, expected {expected(name)}" for word in words if not _is_fine(name, known, word)), None)


def setting_fault(name: str, value: Any) -> str | None:  # Any: a TOML value
    """The same for an argument of a profile."""
    known = takes(name)
    if known is None or name in _OPTIONS or (known.kind == "text" and not _names(name)):
        return None
    if known.kind == "switch":
        return None if isinstance(value, bool) else f"got {value!r}, expected true or false"
    many = value if known.many and isinstance(value, list | tuple) else [value]
    is_number = known.kind in ("int", "float")
    fine = all(
        not isinstance(each, bool)
        and (isinstance(each, dict | list) if known.kind == "json" else isinstance(each, int | float) or not is_number)
        and _is_fine(name, known, json.dumps(each) if known.kind == "json" else str(each))
        for each in many
    )
    return None if fine else f"got {value!r}, expected {expected(name)}"


def expected(name: str) -> str:
    """What flag `name` takes, in words."""
    known = takes(name)
    if known is None:
        return "a value"
    if known.kind == "choice" or _names(name):
        words = known.choices or _names(name)
        more = f" and {len(words) - _MOST_SHOWN} more" if len(words) > _MOST_SHOWN else ""
        return f"one of {', '.join(words[:_MOST_SHOWN])}{more}"
    if known.kind == "json":
        return f'{"JSON" if known.list else "a JSON object"}, in single quotes, as in \'{{"key": "value"}}\''
    if known.kind == "text":
        return "a word"
    number = "a whole number" if known.kind == "int" else "a number"
    low, high = _RANGES.get(name, (None, None))
    span = "" if low is None else f" from {low:g} to {high:,}"
    also = [*(["with k, M or G"] if known.human else []), *known.words]
    return f"{number}{span}" + (f" (also {', '.join(also)})" if also else "")


def _is_fine(name: str, known: Takes, word: str) -> bool:
    if names := _names(name):
        return word in names
    match known.kind:
        case "choice":
            return word in known.choices
        case "json":
            return _is_json(word, known)
        case "int" | "float":
            return word in known.words or _is_number(name, known, word)
    return True


def _names(name: str) -> tuple[str, ...]:
    """Words of a flag that vLLM's parser takes as text and refuses later; plug-ins may add to the first two."""
    if name == "quantization":
        return tuple(sorted(signatures.names("quantization")))
    return {"load_format": tuple(sorted(LOADERS)), "optimization_level": _LEVELS}.get(name, ())


def _is_number(name: str, known: Takes, word: str) -> bool:
    if known.human and HUMAN.fullmatch(word):
        return True
    try:
        value = int(word) if known.kind == "int" else float(word)
    except ValueError:
        return False
    low, high = _RANGES.get(name, (value, value))
    return low <= value <= high


def _is_json(word: str, known: Takes) -> bool:
    try:
        value = json.loads(word)
    except ValueError:
        return False
    return known.list or isinstance(value, dict)


def nearest(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """Words that the flag takes and that look like one of those given."""
    known = takes(name)
    among = (known.choices if known is not None else ()) or _names(name)
    meant = [_ALIASES.get(word, word) for word in words]
    return tuple(dict.fromkeys(found for word in meant for found in get_close_matches(word, among, 1, 0.6)))


def whole(name: str) -> str:
    """The flag that `name` is the beginning of, as vLLM completes it; `name` itself where none or several begin so."""
    flags = table().flags
    if name in flags or len(name) < 3:
        return name
    begun = [flag for flag in flags if flag.startswith(name)]
    return begun[0] if len(begun) == 1 else name
