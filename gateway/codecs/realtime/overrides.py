"""Settings of a session or of one response, as clients send them: GA names, and the beta's flat ones where they say the same.

Fields that this gateway has no use for (tracing, include, prompt, truncation, noise reduction, reasoning) are taken and do nothing; the
session object that comes back shows what is in force.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from gateway.codecs.realtime.faults import Fault
from gateway.codecs.realtime.fields import Fields, wrong_type
from gateway.codecs.realtime.formats import read_format
from gateway.events import AudioOut, Tool

MAX_TOOLS = 128
MAX_DEPTH = 24  # of a tool's schema; chat templates walk it
MAX_TOKENS = 4096
SPEEDS = (0.25, 1.5)  # that the protocol knows
SLOWEST = 0.5  # that a voice can be; slower ones are taken as this, and shown so

Wishes = dict[str, Any]  # Any: keyword arguments of an event, each of its field's type


def read_wishes(fields: Fields, voice_id: Callable[[str], str]) -> Wishes:
    """What both `session` and `response` may hold, as fields of UpdateSession and RequestReply. Raises `Fault`.

    `voice_id` maps a client's voice name to one of ours.
    """
    wishes: Wishes = {}
    if (instructions := fields.text("instructions")) is not None:
        wishes["instructions"] = instructions
    if (output := _output(fields)) is not None:
        wishes["output"] = output
    if (tools := fields.objects("tools", MAX_TOOLS)) is not None:
        wishes["tools"] = tuple(_tool(tool) for tool in tools)
    if fields.has("tool_choice"):
        wishes["tool_choice"] = _tool_choice(fields)
    for name in ("max_output_tokens", "max_response_output_tokens"):
        if fields.has(name):
            wishes["max_tokens"] = _max_tokens(fields, name)
    if (temperature := fields.number("temperature")) is not None:
        wishes["temperature"] = temperature
    audio = fields.object("audio")
    spoken = None if audio is None else audio.object("output")
    for place, prefix in ((fields, "output_audio_"), (spoken, "")):
        if place is None:
            continue
        if place.has("voice"):
            wishes["voice"] = voice_id(_voice(place))
        if (speed := place.number_within("speed", *SPEEDS)) is not None:
            wishes["speed"] = max(speed, SLOWEST)
        if (given := read_format(place, f"{prefix}format")) is not None:
            wishes["audio_out"] = AudioOut(codec=given.codec, rate_hz=given.rate_hz)
    return wishes


def read_metadata(fields: Fields) -> dict[str, str] | None:
    """At most 16 pairs of short strings. Raises `Fault`."""
    metadata = fields.object("metadata")
    if metadata is None:
        return None
    if len(metadata.body) > 16:
        raise Fault(f"{metadata.path} has {len(metadata.body)} pairs; expected at most 16.", "invalid_value", metadata.path)
    for key in metadata.body:
        value = metadata.needed_text(key)
        if len(key) > 64 or len(value) > 512:
            raise Fault(
                f"{metadata.at(key[:64])}: expected 64 characters of key and 512 of value.", "string_above_max_length", metadata.path
            )
    return metadata.body


def _output(fields: Fields) -> Literal["audio", "text"] | None:
    """`output_modalities`, or the beta's `modalities`; audio always brings its transcript, so both together are audio."""
    for name in ("output_modalities", "modalities"):
        value = fields.body.get(name)
        if value is None:
            continue
        if not isinstance(value, list):
            raise wrong_type(fields.at(name), value, "an array")
        if value and all(one in ("audio", "text") for one in value):
            return "audio" if "audio" in value else "text"
        raise Fault(f'{fields.at(name)}: expected ["audio"] or ["text"].', "invalid_value", fields.at(name))
    return None


def _tool(fields: Fields) -> Tool:
    kind = fields.text("type") or "function"
    if kind != "function":
        raise Fault(f"{fields.at('type')} is {kind[:40]!r}; this gateway offers function tools.", "invalid_value", fields.at("type"))
    parameters = fields.object("parameters")
    if parameters is not None and _depth(parameters.body) > MAX_DEPTH:
        raise Fault(f"{parameters.path} is nested deeper than {MAX_DEPTH} levels.", "invalid_value", parameters.path)
    schema = {"type": "object", "properties": {}} if parameters is None else parameters.body
    return Tool(name=fields.needed_text("name"), description=fields.text("description") or "", parameters=schema)


def _tool_choice(fields: Fields) -> str:
    value = fields.body["tool_choice"]
    if isinstance(value, dict):
        return f"function:{fields.needed_object('tool_choice').needed_text('name')}"
    return fields.choice("tool_choice", ("auto", "none", "required")) or "auto"


def _max_tokens(fields: Fields, name: str) -> int | Literal["inf"]:
    value = fields.body[name]
    if value == "inf":
        return "inf"
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(fields.at(name), value, 'an integer or "inf"')
    if not 1 <= value <= MAX_TOKENS:
        raise Fault(f'{fields.at(name)} is {value}; expected 1 to {MAX_TOKENS}, or "inf".', "invalid_value", fields.at(name))
    return value


def _voice(fields: Fields) -> str:
    """A name, or an object with an `id`."""
    if isinstance(fields.body["voice"], dict):
        return fields.needed_object("voice").needed_text("id")
    return fields.needed_text("voice")


def _depth(value: Any) -> int:  # Any: JSON
    """Levels of nesting; breadth first, so that depth costs no stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            below
            for one in level
            if isinstance(one, dict | list)
            for below in (one.values() if isinstance(one, dict) else one)
            if isinstance(below, dict | list)
        ]
        if depth > MAX_DEPTH:
            break
    return depth
