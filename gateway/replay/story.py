"""A kept conversation in words: one line for what happened, on its time line, and a table of the turns. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from msgspec import structs

from gateway.capture import Line
from gateway.events import Timeline
from gateway.replay.tape import Tape, TurnStory, turns_of

Body = dict[str, Any]  # Any: a message's fields
MOMENTS = ("ttft_ms", "first_segment_ms", "first_audio_ms", "first_playout_ms", "reply_done_ms")
WIDTH = 160  # of a line's words; a long text is cut here and whole in the file
_HIDDEN = frozenset({"text.delta", "segment.done", "ack", "ping", "pong", "playout", "session.ready", "item.added"})
_ARROWS = {"client": "->", "server": "<-", "capture": "  "}


def told(tape: Tape, *, everything: bool = False) -> Iterator[str]:
    """The whole conversation."""
    header = tape.header
    asked = {name: value for name, value in header.start.items() if name not in ("type", "history", "tools", "capture") and value}
    yield f"{header.session_id}, {header.at}" + (f", key {header.key}" if header.key else "")
    yield f"began with {_brief(asked)}"
    yield f"kept {'with' if header.audio else 'without'} its sound; -> the client, <- the gateway, seconds since the session began"
    yield ""
    sounding: set[tuple[int, int]] = set()
    for line in tape.lines:
        words = _words(line, sounding, everything=everything)
        if words is not None:
            yield f"{line.at_ms / 1000:9.3f}  {_ARROWS.get(line.by, '??')} {words[:WIDTH]}"
    if tape.is_torn:
        yield "           the file ends in the middle of a line: the gateway was stopped while it wrote"
    yield ""
    yield from table(turns_of(tape.lines))


def table(turns: dict[int, TurnStory]) -> Iterator[str]:
    """One line a turn."""
    yield f"{'turn':>4}  {'status':<12} {'segments':>8}  " + "  ".join(f"{name.removesuffix('_ms'):>13}" for name in MOMENTS) + "  (ms)"
    for turn in turns.values():
        yield _row(turn) + (f"  errors: {', '.join(turn.errors)}" if turn.errors else "")


def compared(before: dict[int, TurnStory], after: dict[int, TurnStory]) -> Iterator[str]:
    """Turn by turn: as it was, as it is now, and what differs."""
    yield f"{'':>6}" + next(iter(table({})))
    for one, two in zip_longest(before.values(), after.values()):
        yield "before" + ("  (no such turn)" if one is None else _row(one))
        yield "now   " + ("  (no such turn)" if two is None else _row(two))
        if one is not None and two is not None:
            yield f"{'':>6}      {_difference(one, two)}"


def _difference(one: TurnStory, two: TurnStory) -> str:
    found = [] if one.status == two.status else [f"status {one.status or 'open'} -> {two.status or 'open'}"]
    found += [] if one.errors == two.errors else [f"errors {one.errors or 'none'} -> {two.errors or 'none'}"]
    found += ["the same text" if one.text == two.text else f"another text ({len(one.text)} -> {len(two.text)} characters)"]
    for name in ("first_segment_ms", "first_audio_ms"):
        was, now = getattr(one.timeline, name), getattr(two.timeline, name)
        if was is not None and now is not None:
            found.append(f"{name.removesuffix('_ms')} {now - was:+.0f} ms")
    return ", ".join(found)


def _row(turn: TurnStory) -> str:
    moments = structs.asdict(turn.timeline if turn.timeline is not None else Timeline())
    shown = "  ".join(f"{'-' if moments[name] is None else format(moments[name], '.0f'):>13}" for name in MOMENTS)
    return f"{turn.number:>4}  {turn.status or 'open':<12} {turn.n_segments:>8}  {shown}"


def _words(line: Line, sounding: set[tuple[int, int]], *, everything: bool) -> str | None:
    """None for what says nothing of its own: frames after a segment's first sound, and the small change of the protocol."""
    kind, body = line.body["type"], line.body
    if kind == "audio" and not everything:
        place = (0, -1) if line.by == "client" else (body["turn"], body["index"])
        if place in sounding:
            return None
        sounding.add(place)
        return "the microphone is on" if line.by == "client" else f"turn {place[0]}: first sound of segment {place[1]}"
    if kind in _HIDDEN and not everything:
        return None
    say = _SAY.get(kind)
    return _brief(body) if say is None or everything else say(body)


def _quoted(body: Body) -> str:
    return json.dumps(body.get("text", ""), ensure_ascii=False)


def _turn_done(body: Body) -> str:
    moments = {name.removesuffix("_ms"): body.get("timeline", {}).get(name) for name in MOMENTS}
    return f"turn {body['turn']} {body['status']}: " + ", ".join(f"{n} {v:.0f} ms" for n, v in moments.items() if v is not None)


def _brief(body: Body) -> str:
    """The fields as they are, sound left out."""
    return json.dumps({name: value for name, value in body.items() if name != "data"}, ensure_ascii=False)


_SAY: dict[str, Callable[[Body], str]] = {
    "text": lambda b: f"writes {_quoted(b)}",
    "say": lambda b: f"lets say {_quoted(b)}",
    "reply.create": lambda b: "asks for a reply",
    "cancel": lambda b: "cancels",
    "commit": lambda b: "commits its speech",
    "tool.result": lambda b: f"result of {b['call_id']}: {len(b.get('output', ''))} characters",
    "speech.started": lambda b: f"speech begins (utterance {b['utterance']})",
    "speech.ended": lambda b: f"speech ends (utterance {b['utterance']})",
    "transcript": lambda b: f"hears {_quoted(b)}" + (" (final)" if b.get("final") else ""),
    "turn.started": lambda b: f"turn {b['turn']} begins",
    "segment": lambda b: f"turn {b['turn']} segment {b['index']} ({b['cut']}): {_quoted(b)}",
    "segment.audio": lambda b: f"turn {b['turn']} segment {b['index']} is spoken by {b['voice']}",
    "interrupted": lambda b: f"turn {b['turn']} is interrupted ({b['reason']})",
    "heard": lambda b: f"turn {b['turn']}: {b['heard_ms']} ms were heard: {json.dumps(b['heard_text'], ensure_ascii=False)}",
    "playout.pause": lambda b: f"turn {b['turn']}: hold the sound",
    "playout.resume": lambda b: f"turn {b['turn']}: play on",
    "tool.call": lambda b: f"turn {b['turn']} calls {b['name']} ({b['call_id']})",
    "reply.done": lambda b: (
        f"turn {b['turn']}: all is sent, {b['usage']['output_tokens']} tokens" + (f" (cut: {b['cut']})" if b.get("cut") else "")
    ),
    "turn.done": _turn_done,
    "error": lambda b: f"error {b['code']}: {b['message']}",
    "gone": lambda b: "the connection is gone",
    "resumed": lambda b: "the client is back",
    "full": lambda b: "from here on nothing was kept: the file is full",
    "lines_missing": lambda b: "lines before this one could not be kept",
}
