"""Opens connections to the edge service, one ahead of need, and reads and writes them with a deadline on every wait."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import certifi
from edge_tts.communicate import connect_id
from edge_tts.constants import SEC_MS_GEC_VERSION, WSS_HEADERS, WSS_URL
from edge_tts.drm import DRM
from msgspec import Struct
from multidict import CIMultiDict

from engine.api import EngineBusy, EngineError, EngineNotReady, EngineStalled
from engine.retry_after import read_retry_after
from engine.tts.edge.clock import ServiceClock, token
from engine.tts.edge.protocol import EdgeProtocolError, Message, read_binary, read_text

_CLOSE_S = 0.05  # for the peer's half of the close; a canceled voice is free within 100 ms
_MAX_MESSAGE_BYTES = 1 << 20


class EdgeRefused(EngineError):
    """The service refuses us: token, region, or too much for one address."""

    kind = "refused"


class ConnectionLost(EngineError):
    """The connection ended before the text was spoken."""

    kind = "lost"


class EdgeConnection:
    """One open connection. `opened_at`: `loop.time()` of the upgrade."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, opened_at: float) -> None:
        self._socket = socket
        self.opened_at = opened_at

    async def send(self, *messages: str) -> None:
        """Send text messages. Raises `ConnectionLost`."""
        try:
            for message in messages:
                await self._socket.send_str(message)
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionLost("the service closed the connection before the request") from error

    async def receive(self) -> Message:
        """The next message. Raises `ConnectionLost`, `EdgeProtocolError`."""
        received = await self._socket.receive()
        match received.type:
            case aiohttp.WSMsgType.TEXT:
                return read_text(received.data)
            case aiohttp.WSMsgType.BINARY:
                return read_binary(received.data)
            case aiohttp.WSMsgType.ERROR:
                raise EdgeProtocolError("expected a WebSocket message, got a broken frame") from self._socket.exception()
            case _:
                raise ConnectionLost(f"the service closed the connection (code {self._socket.close_code})")

    async def close(self) -> None:
        """Say goodbye and leave within 50 ms, however much the service still sends.

        aiohttp 3.14 starts its own close timeout anew with each message; when it is canceled it drops the connection.
        """
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.close()
        except TimeoutError:
            pass


class _Spare(Struct, eq=False):
    """A connection that is being opened, or open and waiting."""

    ready: asyncio.Future[EdgeConnection]
    taken: asyncio.Event


class EdgeConnections:
    """Opens connections; keeps at most `max_spares` open ones in wait, each for at most `spare_s` seconds.

    `wall`: Unix time, for the token. `url` ends in the query; tests give their own.
    """

    def __init__(
        self,
        *,
        connect_s: float,
        max_spares: int,
        spare_s: float,
        proxy: str | None = None,
        url: str = WSS_URL,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._connect_s, self._max_spares, self._spare_s = connect_s, max_spares, spare_s
        self._proxy, self._url, self._wall = proxy, url, wall
        self._clock = ServiceClock()
        self._tls = ssl.create_default_context(cafile=certifi.where())
        self._http: aiohttp.ClientSession | None = None
        self._spares: deque[_Spare] = deque()
        self._keepers: set[asyncio.Task[None]] = set()
        self._closers: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Make ready to connect; nothing is sent yet."""
        # One connector for all: names are resolved once, not for each text. Its own limit is off: `Slots` is the limit.
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=300)
        self._http = aiohttp.ClientSession(connector=connector, trust_env=self._proxy is None, cookie_jar=aiohttp.DummyCookieJar())

    async def close(self) -> None:
        """Close spares, connections that are done with, and the connector: within 100 ms."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, *self._closers, return_exceptions=True)
        if self._http is not None:
            await self._http.close()
            self._http = None

    def expect(self) -> None:
        """A text will follow soon: open a connection for it now, unless enough wait already. Never waits, never fails."""
        if self._http is None or len(self._spares) >= self._max_spares:
            return
        loop = asyncio.get_running_loop()
        spare = _Spare(loop.create_future(), asyncio.Event())
        self._spares.append(spare)
        _own(self._keepers, self._keep(spare), "edge-spare")

    async def take(self) -> tuple[EdgeConnection, bool]:
        """A connection, and whether it had been waiting (it may have died meanwhile).

        Raises `EngineStalled`, `EngineNotReady`, `EngineBusy`, `EdgeRefused`.
        """
        while self._spares:
            spare = self._spares.popleft()
            try:
                async with asyncio.timeout(self._connect_s):
                    connection = await asyncio.shield(spare.ready)
            except (EngineError, TimeoutError):
                continue
            except asyncio.CancelledError:
                self._spares.appendleft(spare)
                raise
            spare.taken.set()
            return connection, True
        return await self.open(), False

    async def open(self) -> EdgeConnection:
        """A fresh connection; a refusal for our clock is tried once more with the service's. Raises as `take`."""
        try:
            async with asyncio.timeout(self._connect_s):
                return await self._open_with_clock()
        except TimeoutError as error:
            raise EngineStalled(f"no connection within {self._connect_s} s") from error

    def on_dead_spare(self, connection: EdgeConnection) -> None:
        """A spare had died while it waited: later ones wait less long."""
        age_s = asyncio.get_running_loop().time() - connection.opened_at
        self._spare_s = min(self._spare_s, max(1.0, 0.8 * age_s))

    def retire(self, connection: EdgeConnection) -> None:
        """Close a connection that is done with, in the background: a listener who left, or the next text, does not wait for it."""
        _own(self._closers, connection.close(), "edge-close")

    async def _keep(self, spare: _Spare) -> None:
        """Owns a spare until it is taken or old."""
        connection: EdgeConnection | None = None
        try:
            connection = await self.open()
            spare.ready.set_result(connection)
            async with asyncio.timeout(self._spare_s):
                await spare.taken.wait()
        except EngineError as error:
            spare.ready.set_exception(error)
            spare.ready.exception()  # nobody need ask: the next `take` opens its own and tells
        except TimeoutError:
            pass
        finally:
            if spare in self._spares:
                self._spares.remove(spare)
            if not spare.ready.done():
                spare.ready.set_exception(EngineNotReady("the voice is closing"))
                spare.ready.exception()
            if connection is not None and not spare.taken.is_set():
                await connection.close()

    async def _open_with_clock(self) -> EdgeConnection:
        try:
            return await self._upgrade(self._clock.skew_s)
        except _Refused as refusal:
            skew_s = self._clock.skew_after_refusal(refusal.date, self._wall())
            if skew_s is None:
                raise EdgeRefused("the service refuses the connection (403) and its clock is not the reason") from refusal
        try:
            connection = await self._upgrade(skew_s)
        except _Refused as refusal:
            raise EdgeRefused("the service refuses the connection (403), also with its own time") from refusal
        self._clock.trust(skew_s)
        return connection

    async def _upgrade(self, skew_s: float) -> EdgeConnection:
        """One attempt. Raises `_Refused` on 403, typed errors otherwise."""
        if self._http is None:
            raise EngineNotReady("the voice is not started")
        secret = token(self._wall(), skew_s)
        url = f"{self._url}&ConnectionId={connect_id()}&Sec-MS-GEC={secret}&Sec-MS-GEC-Version={SEC_MS_GEC_VERSION}"
        try:
            socket = await self._http.ws_connect(
                url,
                compress=15,
                proxy=self._proxy,
                ssl=self._tls,
                headers=DRM.headers_with_muid(WSS_HEADERS),
                max_msg_size=_MAX_MESSAGE_BYTES,
                timeout=aiohttp.ClientWSTimeout(ws_receive=None, ws_close=_CLOSE_S),
            )
        except aiohttp.WSServerHandshakeError as error:
            raise self._typed(error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineNotReady(f"cannot reach the service: {type(error).__name__}") from error
        return EdgeConnection(socket, asyncio.get_running_loop().time())

    def _typed(self, error: aiohttp.WSServerHandshakeError) -> Exception:
        headers = error.headers if error.headers is not None else CIMultiDict[str]()
        if error.status == 403:
            return _Refused(headers.get("Date"))
        failure = EngineBusy if error.status == 429 else EngineNotReady
        refusal = failure(f"expected the service to upgrade to WebSocket, got HTTP {error.status}")
        refusal.retry_after_s = read_retry_after(headers.get("Retry-After"), self._wall())
        return refusal


def _own(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None], name: str) -> None:  # Any: what coroutines send and yield
    """Run `work` as one of `tasks`, for as long as it takes."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


class _Refused(Exception):
    """HTTP 403, and the service's time."""

    def __init__(self, date: str | None) -> None:
        super().__init__("HTTP 403")
        self.date = date
