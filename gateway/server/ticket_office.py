"""`POST /v1/tickets`: whoever has a key gets a ticket for somebody who shall have none, a page or an app."""

from __future__ import annotations

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from gateway import auth
from gateway.config import Settings
from gateway.errors import BadMessage, StrettoError
from gateway.server.entry import Entry
from gateway.tickets import TicketWish, narrowed

BODY_BYTES = 4096


async def issue(request: Request, entry: Entry, settings: Settings) -> Response:
    """A ticket and when it ends, or why there is none. A page of another site gets none, whatever key it found."""
    try:
        rights = entry.check_reader(request)
        auth.check_origin(entry.access, request.headers.get("origin"), request.headers.get("host"))
        wish = _wish(await body_of(request, BODY_BYTES))
        if wish.origin:
            auth.check_may_come(entry.access, wish.origin)
        grant = narrowed(rights, wish, settings.personas)
        ttl_s = settings.server.ticket_s if wish.ttl_s is None else wish.ttl_s
        ticket, expires_at = await entry.tickets.issue(grant, ttl_s)
    except StrettoError as error:
        return refusal(error)
    return JSONResponse({"ticket": ticket, "expires_at": round(expires_at)}, 201, headers={"cache-control": "no-store"})


def refusal(error: StrettoError) -> JSONResponse:
    """An HTTP answer in our own form."""
    retry_after = {} if error.retry_after_ms is None else {"Retry-After": str(-(-error.retry_after_ms // 1000))}
    return JSONResponse({"error": {"code": error.code, "message": str(error)}}, error.http_status, headers=retry_after)


async def body_of(request: Request, at_most_bytes: int) -> bytes:
    """The request's body. Raises `BadMessage` as soon as it is too large, and where it breaks off."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > at_most_bytes:
                raise BadMessage(f"The body has more than {at_most_bytes} bytes.")
    except ClientDisconnect as error:  # a phone that went away: nobody reads the answer, and it is no fault of ours
        raise BadMessage(f"The body broke off after {len(body)} bytes.") from error
    return body


def _wish(body: bytes) -> TicketWish:
    try:
        return msgspec.json.decode(body or b"{}", type=TicketWish)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        fields = ", ".join(field.name for field in msgspec.structs.fields(TicketWish))
        raise BadMessage(f"The body is not a ticket's wish: {error}. Expected a JSON object with any of: {fields}.") from error
