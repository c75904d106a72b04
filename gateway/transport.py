"""The socket under the server: uvicorn's protocols with the bounds they lack, and a listener that does not delay small frames.

Why each override is needed (uvicorn 0.50 to 0.54): no time limit on a half-sent request, none on a peer that does not read its answer or
our close (such a socket stays for ever), no limit on one peer's sockets, on header bytes, pings and fragments, a 64 KiB write buffer that
hides a slow reader, `X-Forwarded-For` believed from anybody on loopback, and a shutdown that closes every socket at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame
from websockets.http11 import Request

from gateway import addresses
from gateway.admission import SPARE_SOCKETS, Crowd, Elsewhere, Rate
from gateway.config import Settings
from gateway.errors import CLOSE_POLICY

RESPONSE_S = 60.0  # for one HTTP answer; the page's largest file takes a bad phone ten
HEADER_BYTES = 16_384
CLOSE_S = 3.0  # for the peer's answer to our close frame
LINGER_S = 5.0  # then for what it has not taken; the conversation is over
FRAGMENTS = 1024  # of one message; 15 MiB in pieces of 16 KiB
PINGS_PER_S = 20.0  # a peer's own keepalive needs one in seconds
SLICE_BYTES = 4096  # read at once; a read of 256 KiB of empty frames held the loop for 200 ms
WRITE_BUFFER_BYTES = 8192  # 170 ms of 24 kHz pcm16: back-pressure is felt before it is heard
SEND_BUFFER_BYTES = 32_768
NOTSENT_BYTES = 16_384
PING_S = 15.0  # under the 20 s that proxies and the protocol promise
BACKLOG = 512
REALTIME_PATH = "/v1/realtime"
PORT_SETTING = "--port (server.port)"
_TCP_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)


class Sockets:
    """Who holds sockets open, before anything is read from them. Our own proxies may hold any number: their clients are counted later."""

    def __init__(self, at_most: int, proxies: addresses.Networks, elsewhere: Elsewhere | None = None) -> None:
        self._crowd = Crowd(at_most, elsewhere)
        self._proxies = proxies
        self._of: dict[asyncio.BaseTransport, str] = {}
        self._spare: set[asyncio.BaseTransport] = set()

    def opened(self, transport: asyncio.BaseTransport) -> bool:
        """Whether this one may stay, if only to say what it comes for (`is_spare`)."""
        peer = transport.get_extra_info("peername")
        address = addresses.counted(peer[0]) if isinstance(peer, tuple) else ""
        if not address or addresses.is_trusted(peer[0], self._proxies):
            return True
        if not self._crowd.has_room(address):
            self._spare.add(transport)
        if not self._crowd.enter(address, SPARE_SOCKETS):
            self._spare.discard(transport)
            return False
        self._of[transport] = address
        return True

    def is_spare(self, transport: asyncio.BaseTransport) -> bool:
        """Whether it stands beside the bound, where none may stay but who comes back for a session."""
        return transport in self._spare

    def closed(self, transport: asyncio.BaseTransport) -> None:
        """It is gone."""
        self._spare.discard(transport)
        address = self._of.pop(transport, None)
        if address is not None:
            self._crowd.leave(address)


class BoundedHttp(HttpToolsProtocol):
    """HTTP with a deadline and a byte limit on each request's headers."""

    sockets: ClassVar[Sockets]
    request_s: ClassVar[float]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn narrows it the same way
        super().connection_made(transport)
        if not self.sockets.opened(transport):
            transport.abort()
        self._header_bytes = 0
        self._tail = b""  # the last bytes before, in which the headers' end may have begun
        self._header_timer: asyncio.TimerHandle | None = self.loop.call_later(self.request_s, transport.abort)
        self._response_timer: asyncio.TimerHandle | None = None
        self._is_too_many = False

    def data_received(self, data: bytes) -> None:
        if self._header_timer is not None:
            self._header_bytes += _header_part(self._tail, data)
            self._tail = (self._tail + data[-3:])[-3:]
            if self._header_bytes > HEADER_BYTES:
                self._done_with_headers()
                self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
                self.transport.close()
                return
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._done_with_headers()
        self._is_too_many = self.sockets.is_spare(self.transport) and b"resume=" not in self.url.partition(b"?")[2]
        if self._is_too_many:
            self.transport.abort()
            return
        self._expect_response()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_too_many:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_too_many:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._done_with_response()
        if self.pipeline:
            self._expect_response()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        self._done_with_response()  # from here on the connection is the WebSocket protocol's
        if self._is_too_many:
            return
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._header_timer is None:  # the next request of a kept connection
            self._header_bytes, self._tail = 0, b""
            self._header_timer = self.loop.call_later(self.request_s, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._done_with_headers()
        self._done_with_response()
        self.sockets.closed(self.transport)
        super().connection_lost(exc)

    def _expect_response(self) -> None:
        self._done_with_response()
        self._response_timer = self.loop.call_later(RESPONSE_S, self.transport.abort)

    def _done_with_response(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None

    def _done_with_headers(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


def _header_part(tail: bytes, data: bytes) -> int:
    """How many of these bytes are headers: what stands behind their end is a body, which has bounds of its own."""
    end = (tail + data).find(b"\r\n\r\n")
    return len(data) if end < 0 else max(0, end + 4 - len(tail))


class PromptWebSocket(WebSocketsSansIOProtocol):
    """WebSocket whose writer feels the peer's reading within a few frames, and whose end does not depend on the peer.

    `message_bytes`: path -> its bound, where it has its own.
    """

    message_bytes: ClassVar[Mapping[str, int]] = {}
    sockets: ClassVar[Sockets]
    _linger: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        stream = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from asyncio's
        stream.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.close_timeout = CLOSE_S
        self._pings = Rate(PINGS_PER_S, self.loop.time())

    def data_received(self, data: bytes) -> None:
        """In slices, so that a flood is noticed before all of it is taken apart."""
        for at in range(0, len(data), SLICE_BYTES):
            super().data_received(data[at : at + SLICE_BYTES])
            if self.transport.is_closing():
                return

    def handle_ping(self) -> None:
        """Answer, but not a flood of them."""
        if self._pings.take(self.loop.time()):
            super().handle_ping()
        else:
            self._refuse(f"more than {PINGS_PER_S:.0f} pings a second")

    def handle_cont(self, event: Frame) -> None:
        """Take a fragment; empty ones would never reach the bound in bytes."""
        if len(self.frames) < FRAGMENTS:
            super().handle_cont(event)
        else:
            self._refuse(f"more than {FRAGMENTS} fragments")

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The conversation is over: so is the socket, soon, whether its peer reads or not."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._linger = self.loop.call_later(LINGER_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._linger is not None:
            self._linger.cancel()
        self.sockets.closed(self.transport)  # the same transport as before the upgrade
        super().connection_lost(exc)

    def _refuse(self, reason: str) -> None:
        if not self.close_sent:
            self.conn.fail(CLOSE_POLICY, reason)
            self.handle_parser_exception()

    def handle_connect(self, event: Request) -> None:
        """Each door has its own bound on messages; uvicorn knows one for all."""
        self.conn.max_message_size = self.message_bytes.get(event.path.partition("?")[0], self.conn.max_message_size)
        super().handle_connect(event)


class DrainedServer(Server):
    """uvicorn without its own signal handlers: the gateway drains first, then lets it exit."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave SIGTERM and SIGINT to the gateway."""
        yield


class CannotListen(Exception):
    """The address is taken, or not ours."""


def listen(host: str, port: int, setting: str = PORT_SETTING, *, shares_port: bool = False) -> socket.socket:
    """A listening socket whose small frames leave at once. `setting`: what takes another port. `shares_port`: others listen there too,
    and the system spreads what comes.

    Raises `CannotListen`. The protocol number matters: without it asyncio leaves Nagle on.
    """
    listener = _tcp_socket(host)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shares_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(OSError):  # not on every system; back-pressure is then felt a little later
            listener.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, NOTSENT_BYTES)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _cannot_listen(host, port, setting, error) from error
    return listener


def reserve(host: str, port: int, setting: str = PORT_SETTING) -> socket.socket:
    """A socket that holds the port for listeners that share it, and gets no connection itself. Raises `CannotListen`."""
    if not hasattr(socket, "SO_REUSEPORT"):
        raise CannotListen("several workers need a system with SO_REUSEPORT; expected --workers 1 here")
    try:
        with _tcp_socket(host) as alone:  # fails where anybody listens, also another row of workers, whose port we would share unseen
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))
        held = _tcp_socket(host)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except OSError as error:
        raise _cannot_listen(host, port, setting, error) from error
    return held


def _tcp_socket(host: str) -> socket.socket:
    return socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)


def _cannot_listen(host: str, port: int, setting: str, error: OSError) -> CannotListen:
    is_foreign = error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror)  # then no other port helps
    advice = f"{setting.replace('port', 'host')} takes an address of this machine" if is_foreign else f"{setting} takes another one"
    return CannotListen(f"cannot listen on {host}:{port}: {error.strerror}; {advice}")


def server(app: Any, settings: Settings, tls: ssl.SSLContext | None, elsewhere: Elsewhere | None = None) -> DrainedServer:
    """uvicorn as the gateway needs it (Any: an ASGI application). `elsewhere`: sockets of other processes behind the same port."""
    bounds = {REALTIME_PATH: settings.realtime.message_bytes}
    sockets = Sockets(settings.server.sockets_per_address, addresses.networks(settings.server.trusted_proxies), elsewhere)
    config = Config(
        app,
        ws=type("BoundedWebSocket", (PromptWebSocket,), {"message_bytes": bounds, "sockets": sockets}),
        http=type("BoundedHttp", (BoundedHttp,), {"sockets": sockets, "request_s": settings.server.request_s}),
        proxy_headers=False,  # uvicorn would believe any peer on loopback
        ws_per_message_deflate=False,
        ws_max_size=settings.session.message_bytes,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        timeout_graceful_shutdown=5,
        limit_concurrency=None,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
    )
    config.load()
    if tls is not None:
        config.ssl = tls
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    return DrainedServer(config)
