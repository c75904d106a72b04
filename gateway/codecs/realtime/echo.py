"""The session object: what is in force, whole. Without speech recognition it says so: no turn detection, no transcription."""

from __future__ import annotations

from gateway.codecs.realtime.faults import Json
from gateway.codecs.realtime.formats import show_format
from gateway.events import SessionUpdated


def session_object(settings: SessionUpdated, session_id: str, model: str, heard: Json) -> Json:
    """Settings as `session.created` and `session.updated` carry them."""
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "output_modalities": [settings.output],
        "instructions": settings.instructions,
        "tools": [
            {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in settings.tools
        ],
        "tool_choice": _tool_choice(settings.tool_choice),
        "max_output_tokens": "inf" if settings.max_tokens is None else settings.max_tokens,
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "audio": {
            "input": heard,
            "output": {"format": show_format(settings.audio_out), "voice": settings.voice, "speed": settings.speed},
        },
    }


def _tool_choice(choice: str) -> str | Json:
    kind, _, name = choice.partition(":")
    return {"type": "function", "name": name} if kind == "function" else choice
