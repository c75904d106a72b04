"""A light WebSocket for hundreds of talkers in one process: websockets' sans-I/O core under a bare asyncio protocol.

About a quarter of the cost of websockets' own asyncio client: no task, queue or lock per connection, a callback per frame.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from gateway.client import ConnectFailed
from gateway.codecs.native import SUBPROTOCOL

FRAME_BYTES = 4 * 1024 * 1024


class Reason(Struct, frozen=True):
    """Why a handshake was refused, in the answer's body."""

    code: str = ""


class Refusal(Struct, frozen=True):
    """The body of a refused handshake."""

    error: Reason = Reason()


class Link(asyncio.Protocol):
    """One connection. `on_frame(frame, received_s)` gets every binary frame; `received_s` is CLOCK_MONOTONIC, read once per read.

    `on_lost(code, reason)`: it is gone, with this close code.
    """

    def __init__(self, url: str, key: str | None, on_frame: Callable[[bytes, float], None], on_lost: Callable[[int, str], None]) -> None:
        self._core = ClientProtocol(parse_uri(url), subprotocols=[Subprotocol(SUBPROTOCOL)], max_size=FRAME_BYTES)
        self._key = key
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.n_bytes = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio's
        request = self._core.connect()
        if self._key is not None:
            request.headers["Authorization"] = f"Bearer {self._key}"
        self._core.send_request(request)
        self._flush()

    def data_received(self, data: bytes) -> None:
        received_s = time.monotonic()
        self.n_bytes += len(data)
        self._core.receive_data(data)
        for event in self._core.events_received():
            if isinstance(event, Response):
                self._on_response(event)
            elif isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                self._on_frame(bytes(event.data), received_s)
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectFailed(f"the handshake broke off: {exc}", retryable=True))
        self._core.receive_eof()
        self._on_lost(self._core.close_code or 1006, self._core.close_reason or "")

    def send(self, frame: bytes) -> None:
        """Send a binary frame; nothing on a connection that is gone (`on_lost` told it)."""
        if self._core.state is State.OPEN:
            self._core.send_binary(frame)
            self._flush()

    def close(self) -> None:
        """Say a normal goodbye."""
        if self._core.state is State.OPEN:
            self._core.send_close(1000)
            self._flush()
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """Break the connection, as a network does."""
        if self._transport is not None:
            self._transport.abort()

    def read(self, on: bool) -> None:
        """Take what arrives, or leave it in the socket's buffers."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading() if on else self._transport.pause_reading()

    def _on_response(self, response: Response) -> None:
        if self.opened.done():
            return
        if self._core.state is State.OPEN:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(_refused(response))

    def _flush(self) -> None:
        assert self._transport is not None, "the core has nothing to send before connection_made"
        for data in self._core.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()


def _refused(response: Response) -> ConnectFailed:
    try:
        code = msgspec.json.decode(response.body or b"{}", type=Refusal).error.code
    except msgspec.MsgspecError:
        code = ""
    after = response.headers.get("Retry-After", "")
    return ConnectFailed(
        f"the gateway answered HTTP {response.status_code}{code and f' ({code})'}",
        status=response.status_code,
        code=code,
        retryable=response.status_code in (429, 503),
        retry_after_s=float(after) if after.isdigit() else None,
    )


async def open_link(
    url: str,
    key: str | None,
    on_frame: Callable[[bytes, float], None],
    on_lost: Callable[[int, str], None],
    tls: ssl.SSLContext | None = None,
) -> Link:
    """A connection after its handshake; `tls` for wss:// where the system's trust is not what is wanted. Raises `ConnectFailed`."""
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        raise ConnectFailed(f"{url!r} is not a WebSocket address; expected one like ws://127.0.0.1:8080/v1/voice")
    loop, is_tls = asyncio.get_running_loop(), parts.scheme == "wss"
    port = parts.port or (443 if is_tls else 80)
    try:
        _, link = await loop.create_connection(
            lambda: Link(url, key, on_frame, on_lost), parts.hostname, port, ssl=(tls or True) if is_tls else None
        )
        await link.opened
    except ssl.SSLCertVerificationError as error:
        fault = f"the certificate of {url} is not trusted here ({error.verify_message})"
        raise ConnectFailed(f"{fault}; a self-signed one has to be accepted (--insecure)") from error
    except (OSError, ConnectionClosed) as error:
        raise ConnectFailed(f"nothing listens at {url} ({error})", retryable=True) from error
    return link
