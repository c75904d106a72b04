"""In which line of a TOML text each key stands. Pure.

`tomllib` does the reading: a line alone where it is a header, as many lines as a value needs where it begins one. So strings, arrays
and inline tables over several lines are told from keys by the parser itself. What stands inside an inline table has its beginning's line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

Path = tuple[str | int, ...]
LONGEST_VALUE = 400  # lines that one value may take before it is given up: a missing bracket must not make this quadratic


def lines_of(text: str) -> dict[Path, int]:
    """The line (from 1) of every header and key; entries of `[[name]]` are numbered from 0. The text is valid TOML."""
    found: dict[Path, int] = {}
    table: Path = ()
    counts: dict[Path, int] = {}
    rows = text.splitlines()
    place = 0
    while place < len(rows):
        row = rows[place].strip()
        first = place + 1
        place += 1
        if not row or row.startswith("#"):
            continue
        if row.startswith("[") and (header := _parsed(row)) is not None:
            table = _numbered(header, counts, is_new=row.startswith("[["))
            found.setdefault(table, first)
            continue
        taken = [rows[first - 1]]
        while (value := _parsed("\n".join(taken))) is None and place < len(rows) and len(taken) < LONGEST_VALUE:
            taken.append(rows[place])
            place += 1
        for path in _paths(value or {}):
            found.setdefault((*table, *path), first)
    return found


def line_of(lines: Mapping[Path, int], path: Sequence[str | int]) -> int | None:
    """The line of `path`, or of the nearest thing around it that has one."""
    for length in range(len(path), 0, -1):
        if (line := lines.get(tuple(path[:length]))) is not None:
            return line
    return None


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _numbered(header: Mapping[str, Any], counts: dict[Path, int], *, is_new: bool) -> Path:
    """The header's path, with the number of the entry behind each `[[name]]` on it."""
    path: Path = ()
    inner: Any = header
    while isinstance(inner, Mapping) and inner:
        (name, inner), *_ = inner.items()
        path = (*path, name)
        is_last = not inner or isinstance(inner, list)
        if is_last and is_new:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
        if isinstance(inner, list):
            break
    return path


def _paths(value: Mapping[str, Any]) -> list[Path]:
    """Every path inside what one line (with its following ones) has set."""
    found: list[Path] = []
    for key, inner in value.items():
        found.append((key,))
        if isinstance(inner, Mapping):
            found += [(key, *path) for path in _paths(inner)]
    return found
