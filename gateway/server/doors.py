"""The routes of the port, and who may come in by each.

`/` the page, `/v1/voice` the native protocol, `/v1/realtime` OpenAI's, `/v1/tickets` and `/v1/realtime/client_secrets` for those who have a
key, `/metrics`, `/healthz` (the process lives), `/readyz` (engines accept requests, and newcomers are let in).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.build import Engines
from gateway import auth, realtime_door, transport
from gateway.admission import BACK_AT_ONCE, Crowd
from gateway.capture import Captures
from gateway.codecs import Codec, native
from gateway.connection import Connection
from gateway.errors import Overloaded, StrettoError, Unauthorized, UnsupportedSubprotocol
from gateway.server import metrics_door, secret_office, ticket_office
from gateway.server.entry import Entry
from gateway.session import error_frame
from gateway.sessions import Sessions
from gateway.tickets import TicketKeeper
from gateway.turn import Parts
from gateway.workers import Row

_PACKAGE = Path(__file__).parents[1]
WEB = next(folder for folder in (_PACKAGE / "web", _PACKAGE.parent / "web") if folder.is_dir())  # in the wheel, in a checkout

MARKER = ((b"x-generated-content", b"audio"),)  # what is heard here was not said by a person


class Doors:
    """Everything that a client can ask of this process."""

    def __init__(
        self,
        parts: Parts,
        engines: Engines,
        sessions: Sessions,
        keeper: TicketKeeper | None = None,
        row: Row | None = None,
        captures: Captures | None = None,
    ) -> None:
        self.parts = parts
        self.settings = parts.settings
        self.metrics = parts.metrics
        self.engines = engines
        self.sessions = sessions
        self.captures = captures
        self._row = row
        self._returning = Crowd(BACK_AT_ONCE)
        self.admission = sessions.admission
        self.entry = Entry(self.settings, self.metrics, keeper, None if row is None else row.crowds.of("client"))
        self.metrics_door = metrics_door.MetricsDoor(self.settings, self.entry, self.metrics, row)

    def routes(self) -> list[BaseRoute]:
        """Each address and what answers there."""
        return [
            Route("/", self._page),
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            *([] if self.metrics_door.is_apart else [Route(metrics_door.PATH, self.metrics_door.answer)]),
            WebSocketRoute("/v1/voice", self._voice),
            Route("/v1/voice", self._explain),
            WebSocketRoute(transport.REALTIME_PATH, self._realtime),
            Route(transport.REALTIME_PATH, self._explain_realtime),
            Route("/v1/tickets", self._ticket, methods=["POST"]),
            Route(secret_office.PATH, self._secret, methods=["POST"]),
            Mount("/web", StaticFiles(directory=WEB)),
        ]

    async def _voice(self, socket: WebSocket) -> None:
        try:
            grant = await self.entry.recognise(socket, native.KEY_PREFIX)
            if grant.payload:  # its settings are Realtime's, and must not be got round
                raise Unauthorized(f"A client secret opens {transport.REALTIME_PATH} alone; expected a key or a ticket.")
            if native.SUBPROTOCOL not in socket.scope["subprotocols"]:
                raise UnsupportedSubprotocol(f"Expected the subprotocol {native.SUBPROTOCOL}.")
            back_for = await self._back_for(socket, grant.rights)
            with self._place(socket, grant.rights, back_for=back_for):
                await self.entry.spend(grant)
                codec = native.NativeCodec(self.settings.session.message_bytes, self.settings.session.idle_s)
                await self._serve(socket, native.SUBPROTOCOL, codec, grant.rights, is_back=bool(back_for))
        except StrettoError as error:
            self.metrics.errors.labels(error.code).inc()
            await _deny(socket, error)

    async def _realtime(self, socket: WebSocket) -> None:
        try:
            grant = await self.entry.recognise(socket, realtime_door.KEY_PREFIX)
            guest = realtime_door.enter(socket, grant, self.settings, can_listen=self.parts.ears is not None)
            with self._place(socket, grant.rights):
                await self.entry.spend(grant)
                await self._serve(socket, guest.subprotocol, guest.codec, guest.rights)
        except StrettoError as error:
            self.metrics.errors.labels(error.code).inc()
            await socket.send_denial_response(realtime_door.refusal(error))

    async def _back_for(self, socket: WebSocket, rights: auth.Rights) -> str:
        """For whose session, open here or at another worker, somebody comes whom a newcomer's bounds would refuse; "" for none.

        Its old socket may count for a while yet: a phone that changes networks is back long before that is found dead. The client says
        which session (`?resume=ID`), or its ticket says who it is; what it shows in `session.start` decides then, and a new one is refused.
        """
        is_refused = self._refusal(rights) is not None or not self.entry.has_room(socket)
        if not is_refused or self._refusal(rights, is_back=True) is not None:
            return ""
        session_id = socket.query_params.get("resume", "")
        whose = session_id or rights.user
        if self.sessions.holds(session_id, rights):
            return whose
        if self._row is None or not whose:
            return ""
        return whose if await self._row.siblings.hold(session_id, rights) else ""

    def _refusal(self, rights: auth.Rights, *, is_back: bool = False) -> StrettoError | None:
        refusal = self.admission.refusal(is_back=is_back)
        if refusal is None and not is_back and not self.admission.may_return:
            refusal = self.sessions.newcomer_refusal(rights.account)
        return refusal

    @contextlib.contextmanager
    def _place(self, socket: WebSocket, rights: auth.Rights, *, back_for: str = "") -> Iterator[None]:
        """A place in the house, held from before the ticket is spent. Raises `Overloaded`, `Draining`, `RateLimited`."""
        refusal = self._refusal(rights, is_back=bool(back_for))
        with contextlib.ExitStack() as held:
            if refusal is None and back_for:
                if self._returning.enter(back_for):
                    held.callback(self._returning.leave, back_for)
                else:
                    fault = f"{BACK_AT_ONCE} connections have come for this session at once; expected one that resumes it."
                    refusal = Overloaded(fault, retry_after_ms=5000)
            if refusal is not None:
                self.metrics.refused.labels(refusal.reason or refusal.code).inc()
                raise refusal
            held.enter_context(self.entry.place(socket, is_back=bool(back_for)))
            self.admission.connected += 1
            self.metrics.connections.inc()
            try:
                yield
            finally:
                self.admission.connected -= 1
                self.metrics.connections.dec()

    async def _serve(self, socket: WebSocket, subprotocol: str | None, codec: Codec, rights: auth.Rights, *, is_back: bool = False) -> None:
        await socket.accept(subprotocol, MARKER if self.settings.label.marker else None)
        await Connection(
            socket,
            codec,
            self.sessions,
            self.settings.session,
            self.metrics,
            self.parts.now,
            rights,
            socket.headers.get("traceparent", ""),
            self.captures,
            is_back=is_back,
        ).serve()

    async def _explain_realtime(self, request: Request) -> Response:
        """As `_explain`, in OpenAI's form."""
        try:
            realtime_door.enter(request, await self.entry.recognise(request, realtime_door.KEY_PREFIX), self.settings)
        except StrettoError as error:
            return realtime_door.refusal(error)
        return PlainTextResponse("This address speaks WebSocket.", 426, {"upgrade": "websocket"})

    async def _explain(self, request: Request) -> Response:
        """Why a handshake here would fail (401, 403), or 426: a browser is not told and asks again over HTTP."""
        try:
            await self.entry.recognise(request, native.KEY_PREFIX)
        except StrettoError as error:
            return ticket_office.refusal(error)
        return PlainTextResponse("This address speaks WebSocket.", 426, {"upgrade": "websocket"})

    async def _ticket(self, request: Request) -> Response:
        return await ticket_office.issue(request, self.entry, self.settings)

    async def _secret(self, request: Request) -> Response:
        return await secret_office.issue(request, self.entry, self.sessions, self.parts)

    async def _page(self, _: Request) -> Response:
        return FileResponse(WEB / "index.html")

    async def _alive(self, _: Request) -> Response:
        return JSONResponse({"status": "alive", "pid": os.getpid()})

    async def _ready(self, request: Request) -> Response:
        """Why an engine is not ready (files, last words of a process) is told to those alone who may talk here."""
        try:
            self.entry.check_reader(request)
            engines = {name: health.detail for name, health in self.engines.health().items()}
        except StrettoError:
            engines = {name: "ready" if health.ready else "not ready" for name, health in self.engines.health().items()}
        shedding = self.admission.shedding
        is_ready = self.engines.is_ready and not self.admission.is_draining and shedding is None
        body = {"ready": is_ready, "draining": self.admission.is_draining, "engines": engines}
        headers = {}
        if shedding is not None:
            body["shedding"] = str(shedding)
            headers["Retry-After"] = str(-(-(shedding.retry_after_ms or 0) // 1000))
        return JSONResponse(body, 200 if is_ready else 503, headers=headers)


async def _deny(socket: WebSocket, error: StrettoError) -> None:
    """Refuse before the upgrade; a browser cannot read that answer, so one that may talk gets an `error` frame and a close code."""
    from_page = "origin" in socket.headers and native.SUBPROTOCOL in socket.scope["subprotocols"] and error.http_status in (429, 503)
    if from_page:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):  # it has not waited for the answer
            await socket.accept(native.SUBPROTOCOL)
            await socket.send_bytes(native.encode_server(error_frame(error), None))
            await socket.close(error.close or 1013, error.code)
        return
    await socket.send_denial_response(ticket_office.refusal(error))
