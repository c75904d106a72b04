"""Bytes of an event stream -> its payloads. Pure. Source: WHATWG HTML, section 9.2 "Server-sent events".

Looser than the standard in one point: each `data` line is a payload of its own. No chat server writes JSON over several lines,
and some leave out the empty line between two events.
"""

from __future__ import annotations

from engine.api import EngineError

_LONGEST_BYTES = 1 << 20  # a line; a whole tool call takes a few kilobytes
DONE = b"[DONE]"


class EventLines:
    """Feed what arrives, cut anywhere."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Payloads of the lines that are whole now. Raises `EngineError` for a line without end."""
        *lines, self._rest = (self._rest + data).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._rest) > _LONGEST_BYTES:
            raise EngineError(f"the server sent a line of more than {_LONGEST_BYTES} bytes; expected an event stream")
        return [payload for line in lines if (payload := _payload(line))]

    def flush(self) -> list[bytes]:
        """The payload of a last line without an end."""
        rest, self._rest = self._rest, b""
        return [payload] if (payload := _payload(rest)) else []


def _payload(line: bytes) -> bytes:
    """Empty for comments, other fields, and keep-alives."""
    return line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
