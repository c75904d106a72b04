"""A kept conversation, read from its file; and what each of its turns came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.capture import FORMAT, Header, Line
from gateway.events import CLIENT_EVENTS, SERVER_EVENTS, StartSession, Timeline


class BadTape(Exception):
    """The file is no kept conversation. The message says where and why."""


class Tape(Struct, frozen=True):
    """`lines` in the order in which they were written. `is_torn`: the last one was not written whole."""

    header: Header
    lines: list[Line]
    is_torn: bool = False


class TurnStory(Struct):
    """What one turn came to. `status` "": it had not ended."""

    number: int
    status: str = ""
    text: str = ""
    n_segments: int = 0
    errors: list[str] = []
    timeline: Timeline = Timeline()


def read(path: Path) -> Tape:
    """Raises `BadTape`."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadTape(f"cannot read {path}: {error.strerror}") from error
    first, *rest = raw.split(b"\n")
    try:
        header = msgspec.json.decode(first, type=Header)
        msgspec.convert(header.start, StartSession)
    except msgspec.DecodeError as error:
        raise BadTape(f"{path} is no kept conversation: its first line is not one of {FORMAT} ({error})") from error
    if header.format != FORMAT:
        raise BadTape(f"{path} is of the format {header.format[:40]!r}; expected {FORMAT}")
    lines, is_torn = [], bool(rest) and bool(rest[-1])
    for number, text in enumerate(rest[:-1], 2):
        try:
            lines.append(_checked(msgspec.json.decode(text, type=Line)))
        except msgspec.DecodeError as error:
            raise BadTape(f"{path}, line {number}: {error}") from error
    return Tape(header, lines, is_torn)


def _checked(line: Line) -> Line:
    """A line whose message is what its `type` says; one that we do not know is of another version. Raises `msgspec.ValidationError`."""
    kind = line.body.get("type")
    if not isinstance(kind, str):
        raise msgspec.ValidationError(f"Got the type {kind!r:.40}; expected the name of a message")
    known: Mapping[str, type[Struct]] = CLIENT_EVENTS if line.by == "client" else SERVER_EVENTS if line.by == "server" else {}
    if kind in known:
        sound = {} if line.body.get("data") is not None else {"data": b""}  # it may not have been kept
        msgspec.convert(line.body | sound, known[kind])
    return line


def turns_of(lines: Iterable[Line]) -> dict[int, TurnStory]:
    """By number, in order."""
    turns: dict[int, TurnStory] = {}
    for line in lines:
        number = line.body.get("turn")
        if line.by != "server" or not isinstance(number, int):
            continue
        turn = turns.setdefault(number, TurnStory(number))
        match line.body["type"]:
            case "segment":
                turn.text += line.body.get("text", "")
                turn.n_segments += 1
            case "error":
                turn.errors.append(line.body.get("code", ""))
            case "turn.done":
                turn.status = line.body.get("status", "")
                turn.timeline = msgspec.convert(line.body.get("timeline", {}), Timeline)
    return dict(sorted(turns.items()))
