"""Builds all parts, serves them on one port, and stops them in order.

Routes: `/` the page, `/v1/voice` the native protocol, `/v1/realtime` OpenAI's, `/metrics`, `/healthz` (the process lives), `/readyz`
(engines accept requests).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from msgspec import structs
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from engine.audio_codecs.encoders import EncodingRoom
from engine.build import Engines, build
from engine.observer import Observable
from engine.settings import EngineSettings
from gateway import auth, realtime_door, transport
from gateway.admission import Admission, Knocks
from gateway.codecs import Codec, native
from gateway.config import Settings
from gateway.connection import Connection
from gateway.errors import RateLimited, StrettoError, UnsupportedSubprotocol
from gateway.metrics import Metrics
from gateway.monitor import keep_phrases, keep_warm, watch_engines, watch_gpu, watch_loop
from gateway.profile import persona_prompts
from gateway.session import error_frame
from gateway.sessions import Sessions
from gateway.speech.markup import rules_from
from gateway.speech.phrases import spoken_phrases
from gateway.turn import Parts
from gateway.voice_watch import VoiceWatch

_HERE = Path(__file__).parent
WEB = next(folder for folder in (_HERE / "web", _HERE.parent / "web") if folder.is_dir())  # in the wheel, in a checkout
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asked for anew, so that modules of two versions never mix
    "permissions-policy": "microphone=(self)",
}

TICK_S = 0.05  # how often the drain looks whether turns have finished
CLOSE_S = 3.0  # for the last sockets to take their close frame

log = logging.getLogger("stretto.server")


class Gateway:
    """One gateway process: engines, sessions, and the ASGI application over them."""

    def __init__(self, settings: Settings, engines: Engines, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.engines = engines
        self.metrics = metrics or Metrics()
        self.admission = Admission(settings.session.max_sessions)
        self.knocks = Knocks(settings.server.handshakes_per_s)
        self.encoding = EncodingRoom()
        self.parts = Parts(
            model=engines.model,
            voices=engines.voices,
            metrics=self.metrics,
            settings=settings,
            rules=rules_from(settings.speech),
            now=time.monotonic,  # the loop's own base, but to the microsecond: uvloop counts whole milliseconds
            ears=engines.ears,
            encoding=self.encoding,
        )
        voices: object = engines.voices
        if isinstance(voices, Observable):
            voices.observe(VoiceWatch(engines.voices, self.metrics))
        self.sessions = Sessions(self.parts, self.admission)
        self.access = auth.access(settings.server.keys, settings.server.origins, settings.server.hosts, settings.keys)
        routes = [
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
        self.app = Starlette(routes=routes, middleware=[Middleware(Guard, access=self.access)])

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Engines started, sessions owned, monitors on; everything stopped in reverse. Raises `EngineSetupError`."""
        personas = persona_prompts(self.settings, self.parts.rules)
        with contextlib.closing(self.encoding):  # after the last turn
            async with self.engines.running(), asyncio.TaskGroup() as tasks:
                tasks.create_task(self.sessions.run(), name="sessions")
                await self.sessions.started.wait()
                monitors = [
                    tasks.create_task(watch_loop(self.metrics), name="loop monitor"),
                    tasks.create_task(
                        watch_engines(self.engines.health, lambda: self.engines.is_ready, self.admission, self.metrics),
                        name="engine monitor",
                    ),
                    tasks.create_task(watch_gpu(self.metrics), name="gpu monitor"),
                    tasks.create_task(keep_warm(self.engines.model, self.admission, personas), name="warm-up"),
                    tasks.create_task(keep_phrases(self.engines.voices, self.settings.tts.voice, self.settings.language), name="phrases"),
                ]
                self.admission.is_ready = self.engines.is_ready
                try:
                    yield
                finally:
                    self.sessions.stop()
                    for monitor in monitors:
                        monitor.cancel()

    async def drain(self) -> None:
        """Refuse newcomers, let running turns finish until the deadline, then close every socket with 4004."""
        self.admission.is_draining = True
        deadline_s = self.settings.server.drain_s
        log.info("draining", extra={"n_sessions": len(self.sessions), "deadline_s": deadline_s})
        self.sessions.drain(deadline_s)
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + deadline_s
        while self.sessions.n_busy and loop.time() < ends_at:
            self.sessions.dismiss(busy_too=False)
            await asyncio.sleep(TICK_S)
        self.sessions.dismiss(busy_too=True)
        while self.admission.connected and loop.time() < ends_at + CLOSE_S:
            await asyncio.sleep(TICK_S)

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


class Guard:
    """Checks the Host of every request and adds the page's security headers."""

    def __init__(self, app: ASGIApp, access: auth.Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), None)
        try:
            auth.check_host(self._access, host)
        except StrettoError as error:
            if scope["path"] == transport.REALTIME_PATH:
                answer = realtime_door.refusal(error)
            else:
                answer = JSONResponse({"error": {"code": error.code, "message": str(error)}}, error.http_status)
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send).send_denial_response(answer)
            else:
                await answer(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *((k.encode(), v.encode()) for k, v in SECURITY_HEADERS.items())]
            await send(message)

        await self._app(scope, receive, send_secured if scope["type"] == "http" else send)


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


async def serve(settings: Settings, tls: ssl.SSLContext | None, listener_ready: asyncio.Future[int] | None = None) -> None:
    """Run a gateway until SIGTERM or SIGINT; a second signal stops it at once.

    Raises `EngineSetupError`, `transport.CannotListen`.
    """
    listener = transport.listen(settings.server.host, settings.server.port)
    port = int(listener.getsockname()[1])
    try:
        engines = build(_engine_settings(settings))
        _banner(settings, engines, port, tls is not None)
        gateway = Gateway(settings, engines)
        server = transport.server(gateway.app, settings, tls)
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _on_signal, stop)
        async with gateway.running(), asyncio.TaskGroup() as tasks:
            _settle_memory()
            tasks.create_task(server.serve(sockets=[listener]), name="server")
            _say(f"ready: {'https' if tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")
            if listener_ready is not None:
                listener_ready.set_result(port)
            await stop.wait()
            stop.clear()
            if gateway.sessions.n_busy:
                _say(f"stopping: replies under way have {settings.server.drain_s:g} s to finish; a second Ctrl-C (or signal) does not wait")
            drain = tasks.create_task(gateway.drain(), name="drain")
            hurry = tasks.create_task(stop.wait(), name="second signal")
            await asyncio.wait([drain, hurry], return_when=asyncio.FIRST_COMPLETED)
            drain.cancel()
            hurry.cancel()
            server.should_exit = True
    finally:
        listener.close()


def _engine_settings(settings: Settings) -> EngineSettings:
    """With the configured phrases as the voices will be asked for them."""
    engines = settings.engine_settings()
    languages = {settings.language, *(persona.language for persona in settings.personas.values() if persona.language)}
    spoken = spoken_phrases(settings.tts.phrases, sorted(languages), rules_from(settings.speech), settings.speech.early_first_segment)
    return structs.replace(engines, tts=structs.replace(engines.tts, phrases=spoken))


def _settle_memory() -> None:
    """Keep the collector off what lives as long as the process: full collections took 70 to 100 ms at 200 sessions."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)  # a young generation of a second's frames; a full collection once in minutes


def _on_signal(stop: asyncio.Event) -> None:
    stop.set()


def _banner(settings: Settings, engines: Engines, port: int, is_tls: bool) -> None:
    _say(f"Stretto on {'https' if is_tls else 'http'}://{_shown_host(settings.server.host)}:{port}/")
    for note in engines.notes:
        _say(f"  {note}")
    n_keys = len(settings.server.keys) + len(settings.keys)
    who = f"{n_keys} key(s)" if n_keys else "no key: everyone who reaches this address may talk"
    _say(f"  access: {who}; at most {settings.session.max_sessions} conversations")


def _shown_host(host: str) -> str:
    return "localhost" if host in ("127.0.0.1", "0.0.0.0", "::", "::1") else host


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
