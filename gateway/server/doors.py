"""The routes of the port, and who may come in by each.

`/` the page, `/v1/voice` the native protocol, `/v1/realtime` OpenAI's, `/metrics`, `/healthz` (the process lives), `/readyz` (engines
accept requests).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from engine.build import Engines
from gateway import auth, realtime_door, transport
from gateway.admission import Knocks
from gateway.codecs import Codec, native
from gateway.connection import Connection
from gateway.errors import RateLimited, StrettoError, UnsupportedSubprotocol
from gateway.session import error_frame
from gateway.sessions import Sessions
from gateway.turn import Parts

_PACKAGE = Path(__file__).parents[1]
WEB = next(folder for folder in (_PACKAGE / "web", _PACKAGE.parent / "web") if folder.is_dir())  # in the wheel, in a checkout


class Doors:
    """Everything that a client can ask of this process."""

    def __init__(self, parts: Parts, engines: Engines, sessions: Sessions) -> None:
        server = parts.settings.server
        self.parts = parts
        self.settings = parts.settings
        self.metrics = parts.metrics
        self.engines = engines
        self.sessions = sessions
        self.admission = sessions.admission
        self.knocks = Knocks(server.handshakes_per_s)
        self.access = auth.access(server.keys, server.origins, server.hosts, self.settings.keys)

    def routes(self) -> list[BaseRoute]:
        """Each address and what answers there."""
        return [
            Route("/", self._page),
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            WebSocketRoute("/v1/voice", self._voice),
            Route("/v1/voice", self._explain),
            WebSocketRoute(transport.REALTIME_PATH, self._realtime),
            Route(transport.REALTIME_PATH, self._explain_realtime),
            Mount("/web", StaticFiles(directory=WEB)),
        ]

    async def _voice(self, socket: WebSocket) -> None:
        headers, offers = socket.headers, socket.scope["subprotocols"]
        try:
            self._check_rate(socket)
            auth.check_origin(self.access, headers.get("origin"), headers.get("host"))
            rights = auth.check_key(self.access, headers, offers, native.KEY_PREFIX)
            if native.SUBPROTOCOL not in offers:
                raise UnsupportedSubprotocol(f"Expected the subprotocol {native.SUBPROTOCOL}.")
            self._check_room()
        except StrettoError as error:
            self.metrics.errors.labels(error.code).inc()
            await _deny(socket, error)
            return
        session = self.settings.session
        await self._serve(socket, native.SUBPROTOCOL, native.NativeCodec(session.message_bytes, session.idle_s), rights)

    async def _realtime(self, socket: WebSocket) -> None:
        try:
            self._check_rate(socket)
            guest = realtime_door.enter(socket, self.access, self.settings, can_listen=self.parts.ears is not None)
            self._check_room()
        except StrettoError as error:
            self.metrics.errors.labels(error.code).inc()
            await socket.send_denial_response(realtime_door.refusal(error))
            return
        await self._serve(socket, guest.subprotocol, guest.codec, guest.rights)

    def _check_rate(self, knock: HTTPConnection) -> None:
        """Before any key is looked at, wherever an answer tells whether a key is right. Raises `RateLimited`."""
        address = knock.client.host if knock.client is not None else ""
        if not self.knocks.take(address, self.parts.now()):
            self.metrics.refused.labels(RateLimited.code).inc()
            per_s = self.settings.server.handshakes_per_s
            raise RateLimited(f"More than {per_s:g} connections a second from this address.", retry_after_ms=1000)

    def _check_room(self) -> None:
        """Raises `Overloaded`, `Draining`."""
        if (refusal := self.admission.refusal()) is not None:
            self.metrics.refused.labels(refusal.code).inc()
            raise refusal

    async def _serve(self, socket: WebSocket, subprotocol: str | None, codec: Codec, rights: auth.Rights) -> None:
        self.admission.connected += 1
        self.metrics.connections.inc()
        try:
            await socket.accept(subprotocol)
            await Connection(socket, codec, self.sessions, self.settings.session, self.metrics, self.parts.now, rights).serve()
        finally:
            self.admission.connected -= 1
            self.metrics.connections.dec()

    async def _explain_realtime(self, request: Request) -> Response:
        """As `_explain`, in OpenAI's form."""
        try:
            self._check_rate(request)
            realtime_door.enter(request, self.access, self.settings)
        except StrettoError as error:
            return realtime_door.refusal(error)
        return PlainTextResponse("This address speaks WebSocket.", 426, {"upgrade": "websocket"})

    async def _explain(self, request: Request) -> Response:
        """Why a handshake here would fail (401, 403), or 426: a browser is not told and asks again over HTTP."""
        try:
            self._check_rate(request)
            auth.check_origin(self.access, request.headers.get("origin"), request.headers.get("host"))
            auth.check_key(self.access, request.headers, (), native.KEY_PREFIX)
        except StrettoError as error:
            return JSONResponse({"error": {"code": error.code, "message": str(error)}}, error.http_status)
        return PlainTextResponse("This address speaks WebSocket.", 426, {"upgrade": "websocket"})

    async def _page(self, _: Request) -> Response:
        return FileResponse(WEB / "index.html")

    async def _alive(self, _: Request) -> Response:
        return JSONResponse({"status": "alive", "pid": os.getpid()})

    async def _ready(self, request: Request) -> Response:
        """Why an engine is not ready (files, last words of a process) is told to those alone who may talk here."""
        try:
            self._check_reader(request)
            engines = {name: health.detail for name, health in self.engines.health().items()}
        except StrettoError:
            engines = {name: "ready" if health.ready else "not ready" for name, health in self.engines.health().items()}
        is_ready = self.engines.is_ready and not self.admission.is_draining
        return JSONResponse({"ready": is_ready, "draining": self.admission.is_draining, "engines": engines}, 200 if is_ready else 503)

    async def _metrics(self, request: Request) -> Response:
        try:
            self._check_reader(request)
        except StrettoError as error:
            return PlainTextResponse(str(error), error.http_status)
        # In a thread: 4 ms for our own instruments, and vLLM's are many times as many.
        page = await asyncio.to_thread(generate_latest, self.metrics.registry)
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    def _check_reader(self, request: Request) -> None:
        """Raises `RateLimited`, `Unauthorized`."""
        self._check_rate(request)
        auth.check_key(self.access, request.headers, (), native.KEY_PREFIX)


async def _deny(socket: WebSocket, error: StrettoError) -> None:
    """Refuse before the upgrade; a browser cannot read that answer, so one that may talk gets an `error` frame and a close code."""
    retry_after = {} if error.retry_after_ms is None else {"Retry-After": str(-(-error.retry_after_ms // 1000))}
    from_page = "origin" in socket.headers and native.SUBPROTOCOL in socket.scope["subprotocols"] and error.http_status in (429, 503)
    if from_page:
        await socket.accept(native.SUBPROTOCOL)
        await socket.send_bytes(native.encode_server(error_frame(error), None))
        await socket.close(error.close or 1013, error.code)
        return
    body = {"error": {"code": error.code, "message": str(error)}}
    await socket.send_denial_response(JSONResponse(body, error.http_status, headers=retry_after))
