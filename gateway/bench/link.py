"""A light WebSocket for hundreds of talkers in one process: websockets' sans-I/O core under a bare asyncio protocol.

About a quarter of the cost of websockets' own asyncio client: no task, queue or lock per connection, a callback per frame.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

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


class Link(asyncio.Protocol):
    """One connection. `on_frame(frame, received_s)` gets every binary frame; `received_s` is CLOCK_MONOTONIC, read once per read."""

    def __init__(self, url: str, key: str | None, on_frame: Callable[[bytes, float], None], on_lost: Callable[[str], None]) -> None:
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
        self._on_lost(f"closed with {self._core.close_code or 1006} {self._core.close_reason or ''}".strip())

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

    def _on_response(self, response: Response) -> None:
        if self.opened.done():
            return
        if self._core.state is State.OPEN:
            self.opened.set_result(None)
        else:
            refused = f"the gateway answered HTTP {response.status_code}"
            self.opened.set_exception(ConnectFailed(refused, status=response.status_code, retryable=response.status_code == 503))

    def _flush(self) -> None:
        assert self._transport is not None, "the core has nothing to send before connection_made"
        for data in self._core.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()


async def open_link(url: str, key: str | None, on_frame: Callable[[bytes, float], None], on_lost: Callable[[str], None]) -> Link:
    """A connection after its handshake. Raises `ConnectFailed`."""
    parts = urlsplit(url)
    if parts.scheme != "ws" or not parts.hostname:
        raise ConnectFailed(f"{url!r}: the bench speaks plain ws://, as in ws://127.0.0.1:8080/v1/voice")
    loop = asyncio.get_running_loop()
    try:
        _, link = await loop.create_connection(lambda: Link(url, key, on_frame, on_lost), parts.hostname, parts.port or 80)
        await link.opened
    except (OSError, ConnectionClosed) as error:
        raise ConnectFailed(f"nothing listens at {url} ({error})", retryable=True) from error
    return link
