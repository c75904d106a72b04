"""One server over httpx: kept connections, one streamed answer at a time per connection, an abort by closing.

Every wait here has a deadline, and a cancel of the request ends the wait at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast

import httpx

from engine.api import Delta, EngineError, EngineNotReady, EngineSetupError, EngineStalled
from engine.llm.openai import unix
from engine.llm.openai.endpoints import Endpoint, session_of
from engine.llm.openai.reading import ReplyReader, Unreadable, fault_of
from engine.llm.openai.settings import ChatServers
from engine.llm.openai.sse import EventLines
from engine.retry_after import read_retry_after

_KEEP_IDLE_S = 55.0  # below the 60 s after which common proxies drop an idle connection
_KEEP = 256
_TAIL_S = 1.0  # for counts and [DONE] after the model has finished; then the reply ends without them
_CLOSE_S = 0.25
_FAULT_BYTES = 4096
_PROBE_S = 3.0
_T = TypeVar("_T")


class CannotConnect(EngineNotReady):
    """Nothing listens there; nothing was sent."""

    kind = "unreachable"


class Stopped(Exception):
    """Somebody canceled the request; not an error."""


class Request:
    """One open request, so that `cancel` can end its wait without waiting itself."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_cancelled = False
        self._waiting: asyncio.Timeout | None = None

    def cancel(self) -> None:
        """End the wait under way, and all later ones."""
        self.is_cancelled = True
        if self._waiting is not None:
            self._waiting.reschedule(asyncio.get_running_loop().time())

    async def wait(self, what: Callable[[], Awaitable[_T]], deadline_s: float) -> _T:
        """Raises `TimeoutError`, `Stopped`."""
        if self.is_cancelled:
            raise Stopped
        try:
            async with asyncio.timeout_at(deadline_s) as self._waiting:
                return await what()
        except TimeoutError:
            if self.is_cancelled:
                raise Stopped from None
            raise
        finally:
            self._waiting = None


class Connection:
    """To one endpoint."""

    def __init__(self, endpoint: Endpoint, settings: ChatServers) -> None:
        self.endpoint, self._settings = endpoint, settings
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}  # a compressing proxy would hold tokens back
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_KEEP, keepalive_expiry=_KEEP_IDLE_S)
        transport = unix.transport(endpoint.socket, limits) if endpoint.socket else None
        # Only connecting is timed by httpx; one deadline for the first and one for each next piece is kept here.
        timeout = httpx.Timeout(None, connect=settings.connect_s)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout, transport=transport, follow_redirects=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self) -> tuple[str, ...]:
        """What the server offers; empty where it answers and does not say. Raises `EngineError`, and `EngineSetupError` for a wrong key."""
        try:
            async with asyncio.timeout(_PROBE_S):
                response = await self._http.get(f"{self.endpoint.url}/models", headers={"Accept": "application/json"})
        except (TimeoutError, httpx.TimeoutException) as error:
            raise CannotConnect(f"{self.endpoint.name}: no answer within {_PROBE_S:.0f} s") from error
        except httpx.HTTPError as error:
            raise CannotConnect(f"{self.endpoint.name}: {_cause(error)}") from error
        if response.status_code in (401, 403):
            raise EngineSetupError(f"{self.endpoint.name} refuses {self._key_words()} (HTTP {response.status_code})")
        if response.status_code >= 500 or response.status_code == 429:
            raise self._typed(response, response.content)
        return _ids(response)

    async def stream(self, body: dict[str, Any], request: Request) -> AsyncGenerator[Delta, None]:
        """The reply's deltas, the last one with finish and usage. Raises `EngineError`, `Stopped`."""
        now = asyncio.get_running_loop().time
        deadline_s = now() + self._settings.first_s
        response = await self._ask(body, request, deadline_s)
        try:
            if response.status_code != 200:
                raise self._typed(response, await self._fault(response, request))
            _check_type(self.endpoint, response)
            lines, reader = EventLines(), ReplyReader(request.request_id)
            async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as data:  # httpx types it as its supertype
                while True:
                    piece = await self._next(data, request, deadline_s, reader)
                    payloads = lines.flush() if piece is None else lines.feed(piece)
                    for payload in payloads:
                        delta = reader.read(payload)
                        if delta is not None:
                            yield delta
                    if piece is None:
                        break
                    if payloads:  # comments that keep the connection alive are no progress
                        deadline_s = now() + (_TAIL_S if reader.has_finished or reader.is_over else self._settings.next_s)
            yield reader.last()
        finally:
            await _drop(response)

    async def _ask(self, body: dict[str, Any], request: Request, deadline_s: float) -> httpx.Response:
        # The second one is for a router between us and several engines: it keeps a conversation where its prefix is cached.
        headers = {"X-Request-Id": request.request_id, "X-Session-Id": session_of(request.request_id)}
        message = self._http.build_request("POST", f"{self.endpoint.url}/chat/completions", json=body, headers=headers)
        try:
            return await request.wait(lambda: self._http.send(message, stream=True), deadline_s)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise CannotConnect(f"{self.endpoint.name}: {_cause(error)}") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EngineStalled(f"{self.endpoint.name}: no answer within {self._settings.first_s:g} s") from error
        except httpx.HTTPError as error:
            raise EngineNotReady(f"{self.endpoint.name}: the connection broke: {_cause(error)}") from error

    async def _next(self, data: AsyncGenerator[bytes, None], request: Request, deadline_s: float, reader: ReplyReader) -> bytes | None:
        """The next bytes, None at the end of the answer, or when all but the counts has come."""
        try:
            return await request.wait(lambda: anext(data, None), deadline_s)
        except TimeoutError as error:
            if reader.has_finished or reader.is_over:
                return None
            raise EngineStalled(f"{self.endpoint.name}: no further piece of the reply in time") from error
        except httpx.HTTPError as error:
            if reader.has_finished or reader.is_over:
                return None
            raise EngineNotReady(f"{self.endpoint.name}: the answer broke off: {_cause(error)}") from error

    async def _fault(self, response: httpx.Response, request: Request) -> bytes:
        """The beginning of an error's body, for the operator."""
        body = b""
        deadline_s = asyncio.get_running_loop().time() + 1.0
        with suppress(TimeoutError, httpx.HTTPError):
            async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_bytes())) as data:
                while len(body) < _FAULT_BYTES and (piece := await request.wait(lambda: anext(data, None), deadline_s)) is not None:
                    body += piece
        return body[:_FAULT_BYTES]

    def _typed(self, response: httpx.Response, body: bytes) -> EngineError:
        status = response.status_code
        error = fault_of(status, body)
        if status in (401, 403):
            error = EngineError(f"the server refuses {self._key_words()} (HTTP {status})")
            error.retryable = False
        named = type(error)(f"{self.endpoint.name}: {error}")
        named.retryable = error.retryable
        named.retry_after_s = read_retry_after(response.headers.get("Retry-After"), time.time())
        return named

    def _key_words(self) -> str:
        variable = self._settings.key_variable
        if self._settings.api_key:
            return f"the key in the environment variable {variable}" if variable else "the key"
        return "a request without a key; name the environment variable that holds it in llm.key_variable"


def _check_type(endpoint: Endpoint, response: httpx.Response) -> None:
    kind = response.headers.get("Content-Type", "text/event-stream").partition(";")[0].strip()
    if kind not in ("text/event-stream", "application/octet-stream", "text/plain"):
        raise Unreadable(f"{endpoint.name}: expected an event stream, got {kind}; does its address end in /v1?")


def _ids(response: httpx.Response) -> tuple[str, ...]:
    try:
        return tuple(str(model["id"]) for model in response.json()["data"])
    except (ValueError, KeyError, TypeError):
        return ()


def _cause(error: Exception) -> str:
    """In an operator's words; httpx's own are often empty."""
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError) and below.strerror:
            return below.strerror
        below = below.__cause__ or below.__context__
    return str(error) or type(error).__name__


async def _drop(response: httpx.Response) -> None:
    """Close what is left of the answer: the server sees it and stops. An answer read to its end gives its connection back."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(_CLOSE_S):
            await response.aclose()
