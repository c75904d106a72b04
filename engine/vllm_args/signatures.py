"""Which vLLM release knows which argument: a small table, read out of the wheels by `scripts/vllm_signatures.py`.

The installed vLLM is asked first (`installed_arguments`); the table serves machines without it: tests, and `stretto check` on a laptop.
"""

from __future__ import annotations

import json
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Literal

from msgspec import Struct

Kind = Literal["arguments", "server", "sampling", "generate", "quantization"]


class Table(Struct, frozen=True, kw_only=True):
    """`releases` in order; per kind, each name's first and last release among them."""

    releases: tuple[str, ...]
    arguments: dict[str, tuple[str, str]]
    server: dict[str, tuple[str, str]]
    sampling: dict[str, tuple[str, str]]
    generate: dict[str, tuple[str, str]]
    quantization: dict[str, tuple[str, str]]


@cache
def table() -> Table:
    """The whole table."""
    import msgspec

    text = resources.files("engine.vllm_args").joinpath("signatures.json").read_text("utf-8")
    return msgspec.convert(json.loads(text), Table)


def names(kind: Kind, release: str | None = None) -> frozenset[str]:
    """Names of `kind` in `release`; in any release where None. A release that is not in the table counts as its neighbor below."""
    entries: dict[str, tuple[str, str]] = getattr(table(), kind)
    if release is None:
        return frozenset(entries)
    return frozenset(name for name, (first, last) in entries.items() if _order(first) <= _known(release) <= _order(last))


def span(kind: Kind, name: str) -> str | None:
    """The releases that have `name`, in words; None where all of them have it, or none."""
    entry: tuple[str, str] | None = getattr(table(), kind).get(name)
    releases = table().releases
    if entry is None or entry == (releases[0], releases[-1]):
        return None
    first, last = entry
    if first == releases[0]:
        return f"only up to vLLM {last}"
    return f"only from vLLM {first}" + ("" if last == releases[-1] else f" to {last}")


def similar(name: str) -> tuple[str, ...]:
    """Up to three known arguments that look like `name`."""
    return tuple(get_close_matches(name, names("arguments") | names("server"), n=3, cutoff=0.7))


def _order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".")[:2])


def _known(release: str) -> tuple[int, ...]:
    known = [_order(each) for each in table().releases]
    below = [each for each in known if each <= _order(release)]
    return max(below, default=known[0])
