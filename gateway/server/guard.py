"""What stands before every door: the Host that was asked for, and the headers that go with every answer."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway import auth, realtime_door, transport
from gateway.errors import StrettoError

SECURITY_HEADERS = {
    "content-security-policy": "default-src 'self'; connect-src 'self' ws: wss:; img-src 'self' data:; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asked for anew, so that modules of two versions never mix
    "permissions-policy": "microphone=(self)",
}


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
