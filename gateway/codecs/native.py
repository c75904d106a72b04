"""The native protocol `stretto.msgpack.v1`: one msgpack map per binary frame, key `type`; audio is `bin`.

Pure: bytes in, events out, and back. Knows nothing of sockets or sessions. Unknown keys are ignored, unknown types and
anything that is not a plain map of bounded depth is refused with an error that says what was got.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from gateway.errors import CLOSE_BUG, BadMessage, ClientError, StrettoError, UnknownType, WrongFrameKind
from gateway.events import CLIENT_EVENTS, SERVER_EVENTS, ClientEvent, ServerEvent, SessionReady, SessionUpdated, VoiceInfo

SUBPROTOCOL = "stretto.msgpack.v1"
KEY_PREFIX = "stretto-key."
TICKET_PREFIX = "stretto-ticket."
MAX_ID = 128  # characters; 256 ids of each session are remembered
MAX_DEPTH = 8  # session.start with tool schemas needs 6; deeper maps only cost time

_Event = TypeVar("_Event", ClientEvent, ServerEvent)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()


class NativeCodec:
    """The native protocol on one connection; it keeps nothing between frames."""

    is_strict = True
    can_resume = True
    opening = None

    def __init__(self, message_bytes: int, idle_s: float) -> None:
        self.message_bytes = message_bytes
        self.idle_s = idle_s

    def close_code(self, error: StrettoError) -> int:
        """Its own; what has none is our bug."""
        return error.close or CLOSE_BUG

    def decode(self, frame: bytes | str) -> list[ClientEvent]:
        """The event in a binary frame. Raises `WrongFrameKind` on a text frame, `BadMessage`, `UnknownType`."""
        if isinstance(frame, str):
            raise WrongFrameKind("A text frame; this protocol is binary msgpack.")
        return [decode_client(frame)]

    def configure(self, settings: SessionUpdated, voices: tuple[VoiceInfo, ...]) -> None:
        """Its clients say in `session.start` what they want."""

    def welcome(self, ready: SessionReady, settings: SessionUpdated) -> list[bytes | str]:
        """`session.ready`, without `seq`."""
        return [encode_server(ready, None)]

    def encode(self, event: ServerEvent, seq: int | None) -> list[bytes | str]:
        """The event's one frame."""
        return [encode_server(event, seq)]


def decode_client(frame: bytes) -> ClientEvent:
    """The client event in a binary frame.

    Raises `BadMessage` or `UnknownType`; their `ref` is the message's id where it could be read.
    """
    body = _read_map(frame)
    ref = body.get("id") if isinstance(body.get("id"), str) else None
    if ref is not None and len(ref) > MAX_ID:
        raise BadMessage(f"Key `id` has {len(ref)} characters; expected at most {MAX_ID}.")
    try:
        return _convert(body, CLIENT_EVENTS)
    except ClientError as error:
        error.ref = ref
        raise


def encode_client(event: ClientEvent) -> bytes:
    """A frame as a client sends it."""
    return _encoder.encode(_fields(event))


def encode_server(event: ServerEvent, seq: int | None) -> bytes:
    """A frame as we send it; `seq` is left out for `session.ready` and errors before it."""
    body = _fields(event)
    if seq is not None:
        body["seq"] = seq
    return _encoder.encode(body)


def decode_server(frame: bytes) -> tuple[ServerEvent, int | None]:
    """The server event in a frame, and its `seq`. Raises `BadMessage`, `UnknownType`."""
    body = _read_map(frame)
    seq = body.get("seq")
    return _convert(body, SERVER_EVENTS), seq if isinstance(seq, int) else None


def _fields(event: ClientEvent | ServerEvent) -> dict[str, Any]:
    body: dict[str, Any] = {"type": event.__struct_config__.tag}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if value is not None:
            body[name] = value
    return body


def _read_map(frame: bytes) -> dict[str, Any]:
    try:
        body = _decoder.decode(frame)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadMessage("The frame is not msgpack; expected one map with string keys.") from error
    if not isinstance(body, dict):
        raise BadMessage(f"The frame holds {_kind(body)}; expected a map.")
    _check_shape(body, 1)
    if not isinstance(body.get("type"), str):
        raise BadMessage(f"Key `type` is {_kind(body.get('type'))}; expected a string.")
    return body


def _check_shape(value: Any, depth: int) -> None:
    """Refuse what the protocol never needs: deep nesting, keys that are no strings, msgpack extensions."""
    if isinstance(value, dict | list):
        if depth > MAX_DEPTH:
            raise BadMessage(f"The message is nested deeper than {MAX_DEPTH} levels.")
        if isinstance(value, dict):
            for key in value:
                if not isinstance(key, str):
                    raise BadMessage(f"A map key is {_kind(key)}; expected a string.")
        for below in value.values() if isinstance(value, dict) else value:
            _check_shape(below, depth + 1)
    elif isinstance(value, msgspec.msgpack.Ext | datetime):
        raise BadMessage("The message holds a msgpack extension type; none is used here.")


def _convert(body: dict[str, Any], kinds: dict[str, type[_Event]]) -> _Event:
    name = body["type"]
    kind = kinds.get(name)
    if kind is None:
        raise UnknownType(f"Unknown message type {name[:40]!r}; expected one of {', '.join(sorted(kinds))}.")
    try:
        return msgspec.convert(body, kind)
    except msgspec.ValidationError as error:
        raise BadMessage(f"Message `{name}`: {error}.") from error


def _kind(value: Any) -> str:
    names = {dict: "a map", list: "an array", str: "a string", bytes: "bytes", int: "an integer", float: "a float", bool: "a boolean"}
    return "missing" if value is None else names.get(type(value), "something else")
