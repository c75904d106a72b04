"""Conversation items: Realtime JSON <-> items of the conversation."""

from __future__ import annotations

from typing import Literal

from gateway.codecs.realtime.faults import Fault, Json
from gateway.codecs.realtime.fields import Fields
from gateway.events import ItemInfo, Role

MAX_PARTS = 64  # content parts of one message
ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


def read_item(fields: Fields) -> tuple[ItemInfo, Json]:
    """A client's item, and how it is shown again. Raises `Fault`: unknown type, role or content, audio or images among it."""
    kind = fields.needed_text("type")
    item_id = fields.text("id")
    if kind == "message":
        role = ROLES[fields.choice("role", tuple(ROLES)) or "user"]
        parts = [_read_part(part, role) for part in fields.objects("content", MAX_PARTS) or ()]
        text = "\n".join(part["text"] for part in parts)
        info = ItemInfo(item_id=item_id, role=role, text=text)
        return info, _shell(None, "message") | {"role": role, "content": parts}
    if kind == "function_call":
        name, arguments, call_id = fields.needed_text("name"), fields.text("arguments") or "", fields.needed_text("call_id")
        info = ItemInfo(item_id=item_id, kind="call", role="assistant", text=arguments, call_id=call_id, name=name)
        return info, write_item(info, None)
    if kind == "function_call_output":
        call_id, output = fields.needed_text("call_id"), fields.needed_text("output")
        info = ItemInfo(item_id=item_id, kind="result", text=output, call_id=call_id)
        return info, write_item(info, None)
    expected = "expected message, function_call or function_call_output"
    raise Fault(f"{fields.at('type')} is {kind[:80]!r}; {expected}.", "invalid_value", fields.at("type"))


def read_input(fields: Fields) -> ItemInfo:
    """An item of a response's own context: as `read_item`, or a reference to one of the conversation. Raises `Fault`."""
    if fields.text("type") == "item_reference":
        return ItemInfo(item_id=fields.needed_text("id"))
    return read_item(fields)[0]


def write_item(info: ItemInfo, modality: Literal["audio", "text"] | None) -> Json:
    """An item that is complete; `modality`: how a message was said. What a user said has no sound to give back, only its words."""
    if info.kind == "call":
        return function_call(info.item_id, info.call_id or "", info.name or "", info.text, "completed")
    if info.kind == "result":
        return _shell(info.item_id, "function_call_output") | {"call_id": info.call_id, "output": info.text}
    if info.role == "assistant":
        return message(info.item_id, "completed", info.text, modality or "text")
    part = {"type": "input_audio", "transcript": info.text} if modality == "audio" else {"type": "input_text", "text": info.text}
    return _shell(info.item_id, "message") | {"role": info.role, "content": [part]}


def message(item_id: str | None, status: str, text: str | None, modality: Literal["audio", "text"]) -> Json:
    """An assistant's message; `text` None: nothing said yet."""
    part = {"type": "output_audio", "transcript": text} if modality == "audio" else {"type": "output_text", "text": text}
    return _shell(item_id, "message", status) | {"role": "assistant", "content": [] if text is None else [part]}


def function_call(item_id: str | None, call_id: str, name: str, arguments: str, status: str) -> Json:
    """A call that the model made."""
    return _shell(item_id, "function_call", status) | {"call_id": call_id, "name": name, "arguments": arguments}


def _shell(item_id: str | None, kind: str, status: str = "completed") -> Json:
    return {"id": item_id, "object": "realtime.item", "type": kind, "status": status}


def _read_part(part: Fields, role: Role) -> Json:
    """One content part as it is shown again, its words under `text`; the beta's names are read too.

    A part that carries audio's transcript and no audio is taken as its words: that is how clients replay a history.
    """
    kind = part.needed_text("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.needed_text("text")}
    if kind in ("input_audio", "output_audio", "audio") and part.has("transcript") and not part.has("audio"):
        return {"type": "output_text" if role == "assistant" else "input_text", "text": part.needed_text("transcript")}
    raise Fault(f"{part.at('type')} is {kind[:80]!r}; this gateway takes text here.", "unsupported_content_type", part.at("type"))
