"""The door of /v1/realtime: as whom one may come in, and how a refusal looks to OpenAI's clients.

Everything is checked before the upgrade, on the WebSocket request itself. The key that a browser hides among its subprotocols is never
sent back: the answer is `realtime` alone.
"""

from __future__ import annotations

import secrets

from msgspec import Struct
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from gateway.auth import Rights
from gateway.codecs.realtime import RealtimeCodec
from gateway.config import Settings
from gateway.errors import StrettoError, UnknownModel, UnsupportedSubprotocol
from gateway.tickets import Grant

SUBPROTOCOL = "realtime"
KEY_PREFIX = "openai-insecure-api-key."
_CODES = {"unauthorized": "invalid_api_key"}  # as OpenAI's clients know them; ours otherwise


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
    models = settings.realtime.models
    model = request.query_params.get("model") or models[0]
    if model not in models:
        raise UnknownModel(f"The model {model[:80]!r} does not exist here; expected one of: {', '.join(models)}.")
    codec = RealtimeCodec(secrets.token_hex(6), model, settings.realtime.message_bytes, settings.realtime.idle_s, can_listen=can_listen)
    return Guest(codec=codec, subprotocol=SUBPROTOCOL if offers else None, rights=grant.rights)


def refusal(error: StrettoError) -> JSONResponse:
    """An HTTP answer in OpenAI's form."""
    kind = "server_error" if error.http_status >= 500 else "invalid_request_error"
    body = {"message": str(error), "type": kind, "param": None, "code": _CODES.get(error.code, error.code)}
    retry_after = {} if error.retry_after_ms is None else {"Retry-After": str(-(-error.retry_after_ms // 1000))}
    return JSONResponse({"error": body}, error.http_status, headers=retry_after)
