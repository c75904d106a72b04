"""Client messages -> events, one function for each type. Pure reading: what a session thinks of them comes back as events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from gateway.codecs.realtime.faults import NOT_ACTIVE, Fault, Json
from gateway.codecs.realtime.fields import Fields
from gateway.codecs.realtime.items import read_input, read_item
from gateway.codecs.realtime.overrides import Wishes, read_metadata, read_wishes
from gateway.events import AddItem, Cancel, ClearInput, ClientEvent, DeleteItem, RequestReply, RetrieveItem, TruncateItem, UpdateSession

MAX_INPUT = 1024  # items of a response's own context
_decoder = msgspec.json.Decoder()


class Known(Struct, frozen=True, kw_only=True):
    """What reading needs to know of the connection. `voice_id` maps a client's voice name to ours; `turn_of` a response id to its turn."""

    voice_id: Callable[[str], str]
    turn_of: Callable[[str], int | None]
    voice: str
    has_spoken: bool


class Request(Struct, frozen=True, kw_only=True):
    """A message that was read. `event` None: nothing to do. `item`: how a created item is shown; `wishes`: what a response overrides."""

    event: ClientEvent | None
    item: Json | None = None
    wishes: Wishes = {}


def parse(frame: bytes | str) -> Json:
    """The object in a text frame. Raises `Fault`."""
    if isinstance(frame, bytes):
        raise Fault("A binary frame; this protocol is JSON text.", "invalid_frame")
    try:
        body = _decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise Fault("The message is not JSON; expected one object.", "invalid_json") from error
    if not isinstance(body, dict):
        raise Fault("The message is no JSON object; expected one with a `type`.", "invalid_type")
    return body


def read(body: Json, known: Known, ref: str) -> Request:
    """What a message asks for; `ref` will be on its answer. Raises `Fault`."""
    fields = Fields(body)
    kind = fields.needed_text("type")
    reader = _READERS.get(kind)
    if reader is None:
        raise Fault(f"Invalid value: {kind[:80]!r}. Supported values are: {', '.join(sorted(_READERS))}.", "invalid_value", "type")
    return reader(fields, known, ref)


def _session_update(fields: Fields, known: Known, ref: str) -> Request:
    session = fields.needed_object("session")
    if session.choice("type", ("realtime", "transcription")) == "transcription":
        raise Fault("Transcription sessions are not available here; expected type realtime.", "invalid_value", session.at("type"))
    wishes = read_wishes(session, known.voice_id)
    if known.has_spoken and wishes.get("voice", known.voice) != known.voice:
        raise Fault("The voice cannot be changed once the assistant has spoken.", "cannot_update_voice", session.at("audio.output.voice"))
    return Request(event=UpdateSession(id=ref, **wishes))


def _item_create(fields: Fields, _: Known, ref: str) -> Request:
    info, shown = read_item(fields.needed_object("item"))
    event = AddItem(
        id=ref,
        kind=info.kind,
        role=info.role,
        text=info.text,
        item_id=info.item_id,
        after=fields.text("previous_item_id"),
        call_id=info.call_id,
        name=info.name,
    )
    return Request(event=event, item=shown)


def _item_retrieve(fields: Fields, _: Known, ref: str) -> Request:
    return Request(event=RetrieveItem(id=ref, item_id=fields.needed_text("item_id")))


def _item_delete(fields: Fields, _: Known, ref: str) -> Request:
    return Request(event=DeleteItem(id=ref, item_id=fields.needed_text("item_id")))


def _item_truncate(fields: Fields, _: Known, ref: str) -> Request:
    index = fields.number("content_index") or 0
    if index != 0:
        raise Fault(f"content_index is {index:.0f}; a reply has one part, 0.", "invalid_value", "content_index")
    return Request(event=TruncateItem(id=ref, item_id=fields.needed_text("item_id"), audio_ms=fields.needed_number("audio_end_ms")))


def _response_create(fields: Fields, known: Known, ref: str) -> Request:
    response = fields.object("response") or Fields({}, "response")
    wishes = read_wishes(response, known.voice_id)
    conversation: Literal["default", "none"] = "none" if response.choice("conversation", ("auto", "none")) == "none" else "default"
    given = response.objects("input", MAX_INPUT)
    event = RequestReply(
        id=ref,
        conversation=conversation,
        input=None if given is None else tuple(read_input(item) for item in given),
        metadata=read_metadata(response),
        **wishes,
    )
    return Request(event=event, wishes=wishes)


def _response_cancel(fields: Fields, known: Known, ref: str) -> Request:
    response_id = fields.text("response_id")
    if response_id is None:
        return Request(event=Cancel(id=ref))
    turn = known.turn_of(response_id)
    if turn is None:
        raise Fault("Cancellation failed: no active response found", NOT_ACTIVE, "response_id")
    return Request(event=Cancel(id=ref, turn=turn))


def _clear(_: Fields, __: Known, ref: str) -> Request:
    return Request(event=ClearInput(id=ref))


def _append(fields: Fields, _: Known, __: str) -> Request:
    fields.needed_text("audio")
    raise Fault("This gateway has no speech recognition; audio is dropped, expected text.", "audio_input_not_supported", "audio")


def _commit(_: Fields, __: Known, ___: str) -> Request:
    raise Fault("The input audio buffer is empty: this gateway has no speech recognition.", "input_audio_buffer_commit_empty")


_READERS: dict[str, Callable[[Fields, Known, str], Request]] = {
    "session.update": _session_update,
    "conversation.item.create": _item_create,
    "conversation.item.retrieve": _item_retrieve,
    "conversation.item.delete": _item_delete,
    "conversation.item.truncate": _item_truncate,
    "response.create": _response_create,
    "response.cancel": _response_cancel,
    "input_audio_buffer.append": _append,
    "input_audio_buffer.commit": _commit,
    "input_audio_buffer.clear": _clear,
}
