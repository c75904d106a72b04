"""What stands before every door: the Host that was asked for, the page that asks, and the headers that go with every answer.

A browser on this machine reaches a gateway on loopback for any page that it shows. A foreign name that was made to point here is known by
its Host, a page of another site by its Origin; both get nothing, whatever they ask for. Requests without an Origin (links, images, scripts)
are answered, with headers that keep the answer from being embedded or read elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from gateway import auth, realtime_door
from gateway.errors import BadMessage, StrettoError
from gateway.server import ticket_office

# The page needs nothing that is not its own: no inline script or style, no frame, no plug-in, no form that leaves, no other device.
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",  # for browsers that do not know frame-ancestors
    "referrer-policy": "no-referrer",
    # only what Chromium knows: of any other name it complains in the console of every page
    "permissions-policy": "microphone=(self), camera=(), geolocation=(), payment=(), usb=(), serial=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",  # asked for anew, so that modules of two versions never mix
}
REALTIME_PATHS = "/v1/realtime"
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")


class Guard:
    """An ASGI middleware around all routes."""

    def __init__(self, app: ASGIApp, access: auth.Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host, origin = _header(scope, b"host"), _header(scope, b"origin")

        async def send_secured(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message["headers"], *_added(message["headers"], host)]
            await send(message)

        try:
            if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # RFC 9112, 3.2: a proxy may have read the other
                raise BadMessage("Host is there more than once; expected it once.")
            auth.check_host(self._access, host)
            auth.check_origin(self._access, origin, host)
        except StrettoError as error:
            answer = _refusal(error, scope["path"])
            if scope["type"] == "websocket":
                await WebSocket(scope, receive, send_secured).send_denial_response(answer)
            else:
                await answer(scope, receive, send_secured)
            return
        await self._app(scope, receive, send_secured)


def policy(host: str | None) -> str:
    """The content security policy. Some browsers do not count a WebSocket of the page's own host as 'self', so it is named."""
    own = f" ws://{host} wss://{host}" if host is not None and _HOST.fullmatch(host) else ""
    return "; ".join(f"{name} {value}{own if name == 'connect-src' else ''}" for name, value in POLICY.items())


def _added(headers: Iterable[tuple[bytes, bytes]], host: str | None) -> list[tuple[bytes, bytes]]:
    """What the answer does not say itself."""
    said = {name.lower() for name, _ in headers}
    wanted = {"content-security-policy": policy(host), **HEADERS}
    return [(name.encode(), value.encode()) for name, value in wanted.items() if name.encode() not in said]


def _refusal(error: StrettoError, path: str) -> Response:
    return realtime_door.refusal(error) if path.startswith(REALTIME_PATHS) else ticket_office.refusal(error)


def _header(scope: Scope, wanted: bytes) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)
