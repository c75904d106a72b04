"""Errors as Realtime clients know them: exact codes, because clients decide by them whether to go on."""

from __future__ import annotations

from typing import Any

from gateway.errors import BadMessage
from gateway.events import ErrorRaised

Json = dict[str, Any]  # Any: a JSON object of the protocol

ALREADY_ACTIVE = "conversation_already_has_active_response"
NOT_ACTIVE = "response_cancel_not_active"


class Fault(BadMessage):
    """A client's message that cannot be taken; `wire_code` and `param` go into its `error` event."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.wire_code = code
        self.param = param


_BY_MESSAGE: dict[tuple[str, str], str] = {
    ("response.cancel", "unknown_turn"): NOT_ACTIVE,
    ("conversation.item.create", "unknown_item"): "item_create_invalid_previous_item_id",
    ("conversation.item.retrieve", "unknown_item"): "item_retrieve_invalid_item_id",
    ("conversation.item.truncate", "unknown_item"): "item_truncate_invalid_item_id",
    ("conversation.item.delete", "unknown_item"): "item_delete_invalid_item_id",
    ("response.create", "unknown_item"): "item_reference_invalid_item_id",
    ("session.update", "not_available"): "invalid_value",  # tools, and a model that takes none
    ("response.create", "not_available"): "invalid_value",
}
_ANYWHERE: dict[str, str] = {
    "turn_active": ALREADY_ACTIVE,
    "duplicate_item": "item_create_duplicate_item_id",
    "unknown_call": "item_create_invalid_call_id",
    "text_too_long": "string_above_max_length",
    "text_empty": "invalid_value",
    "bad_message": "invalid_value",
    "unknown_voice": "invalid_value",
    "not_audio": "unsupported_content_type",
    "not_available": "audio_input_not_supported",
    "quota_exceeded": "rate_limit_exceeded",
    "input_empty": "input_audio_buffer_commit_empty",
}
_PARAMS_BY_MESSAGE: dict[tuple[str, str], str] = {
    ("session.update", "not_available"): "session.tools",
    ("response.create", "not_available"): "response.tools",
}
_PARAMS: dict[str, str] = {
    "unknown_voice": "audio.output.voice",
    "duplicate_item": "item.id",
    "unknown_call": "item.call_id",
    "unknown_item": "item_id",
}


def known_as(code: str) -> tuple[str, str | None]:
    """An error's code as OpenAI's clients know it, and what it is about."""
    return _ANYWHERE.get(code, code), _PARAMS.get(code)


_OURS = frozenset(
    {"internal", "overloaded", "draining", "going_away", "engine_failed", "engine_not_ready", "engine_stalled", "tts_failed", "slow_reader"}
)

_TYPES = {"quota_exceeded": "rate_limit_error"}


def error_event(raised: ErrorRaised, message_type: str, event_id: str | None, fault: Fault | None, active: str | None) -> Json:
    """The `error` event for an error of ours: `message_type` and `event_id` are the client message's, `active` the open response."""
    code = fault.wire_code if fault is not None else _BY_MESSAGE.get((message_type, raised.code)) or _ANYWHERE.get(raised.code, raised.code)
    text = raised.message
    if code == NOT_ACTIVE:
        text = "Cancellation failed: no active response found"
    elif code == ALREADY_ACTIVE and active is not None:
        text = f"Conversation already has an active response in progress: {active}. Wait until the response is finished or cancel it."
    error = {
        "type": _TYPES.get(raised.code, "server_error" if raised.code in _OURS else "invalid_request_error"),
        "code": code,
        "message": text,
        "param": fault.param if fault is not None else _PARAMS_BY_MESSAGE.get((message_type, raised.code), _PARAMS.get(raised.code)),
        "event_id": event_id,
    }
    return {"type": "error", "error": error}


def failure(raised: ErrorRaised | None) -> Json:
    """`status_details` of a response that failed."""
    code = "server_error" if raised is None else "tts_failed" if raised.code == "tts_failed" else "llm_failed"
    error: Json = {"type": "server_error", "code": code}
    if raised is not None:
        error["message"] = raised.message
    return {"type": "failed", "error": error}
