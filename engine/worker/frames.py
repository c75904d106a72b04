"""Frames between a worker and its parent: four bytes of length, then a msgpack array of kind, request number, body.

Pure. Assumes an ordered, lossless byte stream and a peer of the same version: both ends are always of one release.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024  # a minute of 48 kHz audio is 6 MB: a larger length is a broken stream, not a large frame

_LENGTH = Struct("<I")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, int, Any])  # Any: the stage's own messages, typed by who reads them


class Kind(IntEnum):
    """What a frame says. The first five go to the child, the others come from it."""

    SETUP = 0  # what the stage's factory gets
    OPEN = 1  # a request: {priority, body}
    CANCEL = 2
    PING = 3
    READY = 4  # the stage is loaded; the body is what it says about itself
    FAILED = 5  # the stage could not be loaded: a text for the operator
    BEGUN = 6  # a request has left the queue
    MESSAGE = 7
    ALIVE = 8  # progress without a message
    DONE = 9  # the last frame of a request that did not fail
    ERROR = 10  # the last frame of one that did: {kind, message}
    PONG = 11


class BrokenStream(Exception):
    """The bytes are not frames."""


Frame = tuple[Kind, int, Any]  # Any: see the decoder


def encode(kind: Kind, number: int = 0, body: Any = None) -> bytes:  # Any: whatever msgpack holds
    """One frame, ready to be written."""
    payload = _encoder.encode((int(kind), number, body))
    return _LENGTH.pack(len(payload)) + payload


class FrameReader:
    """Cuts a byte stream into frames, however it was split."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises `BrokenStream`."""
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= _LENGTH.size:
                (n_bytes,) = _LENGTH.unpack_from(self._buffer, position)
                if n_bytes > MAX_FRAME_BYTES:
                    raise BrokenStream(f"got a frame of {n_bytes} bytes, expected at most {MAX_FRAME_BYTES}")
                end = position + _LENGTH.size + n_bytes
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[position + _LENGTH.size : end])
                position = end
                yield _decode(payload)
        finally:
            del self._buffer[:position]


def _decode(payload: bytes) -> Frame:
    try:
        kind, number, body = _decoder.decode(payload)
        return Kind(kind), number, body
    except (msgspec.DecodeError, ValueError) as error:
        raise BrokenStream(f"a frame of {len(payload)} bytes is not [kind, number, body]") from error
