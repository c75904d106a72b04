"""Which kind of file was handed over, and everything that is wrong with a voice table or with limits of a load, line by line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from engine.build import EmotionChange, TableVoice
from gateway.config import Settings, line_of, lines_of
from gateway.load.limits import Limit, LimitsError, check_limit
from gateway.speech.emotion import Emotion

Kind = Literal["settings", "voice table", "limits of a load"]
TOP: dict[Kind, frozenset[str]] = {
    "settings": frozenset(field.name for field in msgspec.structs.fields(Settings)),
    "voice table": frozenset({"emotions", "voices"}),
    "limits of a load": frozenset({"limit"}),
}
ENGINES = ("edge", "kokoro", "piper", "espeak", "fake")  # others are names of [tts.servers]
LISTED_HERE = "edge"  # the one whose voices the table lists


class Fault(Struct, frozen=True):
    """What is wrong where: `path` into the file."""

    path: tuple[str | int, ...]
    text: str


class NoKind(Exception):
    """The file is none of ours; the message says what it looks like and what was expected."""


def read(path: Path) -> tuple[Kind, str, dict[str, Any]]:
    """The file's kind, its text and its tree. Raises `NoKind`."""
    try:
        text = path.read_text("utf-8")
    except IsADirectoryError as error:
        raise NoKind(f"{path} is a folder; expected a file") from error
    except OSError as error:
        raise NoKind(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NoKind(f"{path} is no text in UTF-8 ({error.reason} at byte {error.start}); expected TOML") from error
    try:
        tree = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NoKind(f"{path} is not TOML{_looks(path)}: {error}") from error
    return kind_of(path, tree), text, tree


def kind_of(path: Path, tree: Mapping[str, Any]) -> Kind:
    """By the names at the top, or by one that is spelled like them. Raises `NoKind`."""
    for kind, names in TOP.items():
        if not tree or names & tree.keys():
            return kind
    for kind, names in TOP.items():
        if any(get_close_matches(name, names, 1, 0.8) for name in tree):
            return kind
    raise NoKind(
        f"{path} is none of Stretto's files: it has {', '.join(list(tree)[:6])}; expected settings (sections such as [server] and [llm]), "
        'a voice table ([emotions.NAME], [voices."ENGINE/NAME"]) or limits of a load ([[limit]])'
    )


def _looks(path: Path) -> str:
    kind = {".yaml": "YAML", ".yml": "YAML", ".json": "JSON"}.get(path.suffix.lower())
    return f" (its name says {kind})" if kind else ""


def faults(kind: Kind, tree: Mapping[str, Any]) -> list[Fault]:
    """All that is wrong with a voice table or limits."""
    found = [Fault((name,), _unknown(name, sorted(TOP[kind]))) for name in tree if name not in TOP[kind]]
    return [*found, *(_voice_faults(tree) if kind == "voice table" else _limit_faults(tree))]


def notes(tree: Mapping[str, Any]) -> list[Fault]:
    """What in a voice table is worth a word and hurts nobody."""
    found = []
    for name, row in _tables(tree, "voices"):
        engine = name.partition("/")[0]
        if engine not in ENGINES:
            found.append(
                Fault(("voices", name), f"counts only where settings have [tts.servers.{engine}]; the engines are {', '.join(ENGINES)}")
            )
        elif engine != LISTED_HERE and isinstance(row, Mapping) and "languages" in row:
            found.append(Fault(("voices", name, "languages"), f"is not read: {engine} lists its voices itself"))
    return found


def told(path: Path, text: str, found: Sequence[Fault]) -> list[str]:
    """One line each, in the order of the file."""
    lines = lines_of(text)
    placed = sorted((line_of(lines, fault.path) or 0, _dotted(fault.path), fault.text) for fault in found)
    return [f"{path}, line {line}: {where} {what}" if line else f"{path}: {where} {what}" for line, where, what in placed]


def _voice_faults(tree: Mapping[str, Any]) -> Iterator[Fault]:
    feelings = [each.value for each in Emotion]
    for name, row in _tables(tree, "emotions"):
        if name not in feelings:
            yield Fault(("emotions", name), _unknown(name, feelings))
        yield from _struct_faults(EmotionChange, row, ("emotions", name))
    for name, row in _tables(tree, "voices"):
        engine, slash, voice = name.partition("/")
        if not (engine and slash and voice):
            yield Fault(("voices", name), f'is no voice; got {name!r}, expected "ENGINE/NAME" as in "edge/en-US-AriaNeural"')
        yield from _struct_faults(TableVoice, row, ("voices", name))
        styles = row.get("styles") if isinstance(row, Mapping) else None
        for feeling in styles if isinstance(styles, Mapping) else ():
            if feeling not in feelings:
                yield Fault(("voices", name, "styles", feeling), _unknown(feeling, feelings))
    for section in TOP["voice table"]:
        if not isinstance(tree.get(section, {}), Mapping):
            yield Fault((section,), f"got {tree[section]!r}, expected tables [{section}.NAME]")


def _limit_faults(tree: Mapping[str, Any]) -> Iterator[Fault]:
    given = tree.get("limit", [])
    if not isinstance(given, list) or not given:
        yield Fault(("limit",), "is missing or no list of tables; expected at least one [[limit]]")
        return
    for place, row in enumerate(given):
        wrong = list(_struct_faults(Limit, row, ("limit", place)))
        yield from wrong
        if not wrong:
            try:
                check_limit(msgspec.convert(row, Limit))
            except LimitsError as error:
                yield Fault(("limit", place), str(error))


def _tables(tree: Mapping[str, Any], section: str) -> Iterator[tuple[str, Any]]:
    given = tree.get(section, {})
    yield from given.items() if isinstance(given, Mapping) else ()


def _struct_faults(kind: type[Struct], given: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:  # Any: TOML
    """Every key that the struct does not have, lacks, or would not take."""
    if not isinstance(given, Mapping):
        yield Fault(path, f"got {given!r}, expected a table")
        return
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    yield from (Fault((*path, name), _unknown(name, sorted(fields))) for name in given if name not in fields)
    for name, field in fields.items():
        if name not in given:
            if field.required:
                yield Fault(path, f"lacks {name}")
            continue
        try:
            msgspec.convert(given[name], field.type)
        except msgspec.ValidationError as error:
            yield Fault((*path, name), f"got {given[name]!r}, {str(error)[:1].lower()}{str(error)[1:]}")


def _unknown(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1, 0.6)
    return f"is unknown; expected one of {', '.join(known)}" + (f"; did you mean {near[0]}?" if near else "")


def _dotted(path: Sequence[str | int]) -> str:
    parts = [f"[[{part}]]" if place + 1 < len(path) and isinstance(path[place + 1], int) else part for place, part in enumerate(path)]
    return ".".join(f'"{part}"' if "/" in str(part) else str(part) for part in parts if not isinstance(part, int))
