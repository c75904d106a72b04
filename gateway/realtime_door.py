"""The door of /v1/realtime: as whom one may come in, and how a refusal looks to OpenAI's clients.

Everything is checked before the upgrade, on the WebSocket request itself. The key that a browser hides among its subprotocols is never
sent back: the answer is `realtime` alone.
"""

from __future__ import annotations

import secrets

import msgspec
from msgspec import Struct
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from gateway.auth import Rights
from gateway.codecs.realtime import RealtimeCodec
from gateway.codecs.realtime.faults import Fault, Json, known_as
from gateway.config import Settings
from gateway.errors import StrettoError, UnknownModel, UnsupportedSubprotocol
from gateway.tickets import Grant

SUBPROTOCOL = "realtime"
KEY_PREFIX = "openai-insecure-api-key."
_CODES = {"unauthorized": "invalid_api_key"}  # as OpenAI's clients know them; ours otherwise


class Secret(Struct, frozen=True, kw_only=True):
    """What a client secret is bound to: the payload of its ticket."""

    model: str = ""
    session: Json | None = None


class Guest(Struct, frozen=True, kw_only=True):
    """A client that may come in. `subprotocol` None: it offered none."""

    codec: RealtimeCodec
    subprotocol: str | None
    rights: Rights


def enter(request: HTTPConnection, grant: Grant, settings: Settings, *, can_listen: bool = False) -> Guest:
    """`grant`: what the shown key or ticket opens; `can_listen`: whether this gateway takes audio in.

    Raises `UnsupportedSubprotocol`, `UnknownModel`.
    """
    offers = request.scope.get("subprotocols", [])
    if offers and SUBPROTOCOL not in offers:
        raise UnsupportedSubprotocol(f"Expected the subprotocol {SUBPROTOCOL}, or none.")
    bound = msgspec.json.decode(grant.payload, type=Secret) if grant.payload else Secret()
    codec = codec_for(request.query_params.get("model") or bound.model, settings, can_listen=can_listen, preset=bound.session)
    return Guest(codec=codec, subprotocol=SUBPROTOCOL if offers else None, rights=grant.rights)


def codec_for(model: str, settings: Settings, *, can_listen: bool, preset: Json | None = None) -> RealtimeCodec:
    """Of one connection. `model` empty: the first there is. Raises `UnknownModel`."""
    models, own = settings.realtime.models, settings.realtime
    model = model or models[0]
    if model not in models:
        raise UnknownModel(f"The model {model[:80]!r} does not exist here; expected one of: {', '.join(models)}.")
    return RealtimeCodec(secrets.token_hex(6), model, own.message_bytes, own.idle_s, can_listen=can_listen, preset=preset)


def refusal(error: StrettoError) -> JSONResponse:
    """An HTTP answer in OpenAI's form."""
    kind = "server_error" if error.http_status >= 500 else "invalid_request_error"
    code, param = (error.wire_code, error.param) if isinstance(error, Fault) else known_as(error.code)
    body = {"message": str(error), "type": kind, "param": param, "code": _CODES.get(code, code)}
    retry_after = {} if error.retry_after_ms is None else {"Retry-After": str(-(-error.retry_after_ms // 1000))}
    return JSONResponse({"error": body}, error.http_status, headers=retry_after)
