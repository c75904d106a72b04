"""`POST /v1/realtime/client_secrets`: whoever has a key gets a short-lived one for a browser, bound to a session's settings.

A client secret is a ticket (`gateway/tickets.py`) that opens /v1/realtime as often as its time allows. Its settings are read here as the
conversation will read them, so that what cannot be is refused to who can put it right; its holder may change them as any client may.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway import auth, realtime_door
from gateway.codecs.realtime.faults import Fault, Json
from gateway.errors import BadMessage, StrettoError
from gateway.realtime_door import Secret
from gateway.server.entry import Entry
from gateway.server.ticket_office import body_of
from gateway.session import changed
from gateway.sessions import Sessions
from gateway.tickets import REALTIME_PREFIX, Grant, Name
from gateway.turn import Parts

PATH = "/v1/realtime/client_secrets"
BODY_BYTES = 65_536  # as much as a ticket carries


class ExpiresAfter(Struct, frozen=True, kw_only=True):
    """How long the secret opens the door; what it opened goes on."""

    anchor: Literal["created_at"] = "created_at"
    seconds: Annotated[float, Meta(ge=10, le=7200)] | None = None


class SecretWish(Struct, frozen=True, kw_only=True):
    """The body. `session`: as in `session.update`, and its `model`; `origin`, as for a ticket, is ours. Null and what we do not know count
    as absent.
    """

    expires_after: ExpiresAfter | None = None
    session: Json | None = None
    origin: Name | None = None


async def issue(request: Request, entry: Entry, sessions: Sessions, parts: Parts) -> Response:
    """A client secret, when it ends, and the session that it opens; or why there is none."""
    settings = parts.settings
    try:
        rights = entry.check_reader(request)
        auth.check_origin(entry.access, request.headers.get("origin"), request.headers.get("host"))
        wish = _wish(await body_of(request, BODY_BYTES))
        if wish.origin:
            _check_page(entry.access, wish.origin)
        bound = Secret(model=_model(wish.session or {}), session=wish.session)
        shown = _preview(bound, rights, sessions, parts)
        page = (wish.origin or "").rstrip("/").lower()
        grant = Grant(rights=rights, payload=msgspec.json.encode(bound), origin=page, is_one_use=False)
        asked_s = None if wish.expires_after is None else wish.expires_after.seconds
        value, expires_at = await entry.tickets.issue(grant, asked_s or settings.realtime.client_secret_s, REALTIME_PREFIX)
    except StrettoError as error:
        return realtime_door.refusal(error)
    return JSONResponse({"value": value, "expires_at": round(expires_at), "session": shown}, headers={"cache-control": "no-store"})


def _preview(bound: Secret, rights: auth.Rights, sessions: Sessions, parts: Parts) -> Json:
    """The session object as the secret's holder will see it first. Raises what opening such a session raises."""
    codec = realtime_door.codec_for(bound.model, parts.settings, can_listen=parts.ears is not None, preset=bound.session)
    profile = sessions.wished(codec.opening, rights)
    wish = codec.configure(profile.described(), sessions.voices())
    if wish is not None:
        profile = changed(profile, wish, parts)
    return codec.describe(f"sess_{secrets.token_hex(8)}", profile.described())


def _wish(body: bytes) -> SecretWish:
    try:
        return msgspec.json.decode(body or b"{}", type=SecretWish)
    except msgspec.ValidationError as error:
        raise Fault(f"The body is not what a client secret is asked for with: {error}.", "invalid_value") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Fault("The body is not JSON; expected an object with `session`, `expires_after`, or nothing.", "invalid_json") from error


def _check_page(access: auth.Access, origin: str) -> None:
    try:
        auth.check_may_come(access, origin)
    except BadMessage as error:
        raise Fault(str(error), "invalid_value", "origin") from error


def _model(session: Json) -> str:
    model = session.get("model")
    if model is not None and not isinstance(model, str):
        raise Fault(f"session.model is {model!r:.40}; expected a string.", "invalid_type", "session.model")
    return model or ""
