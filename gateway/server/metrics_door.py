"""`/metrics`: on the port of all the rest, or on an address of its own, and who may read it.

With a key of its own (`metrics.key`) that key alone opens it, and opens nothing else. Without one, the clients' keys do on the common port;
an address of its own is then open to whoever reaches it.
"""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from gateway import auth
from gateway.config import Settings
from gateway.errors import StrettoError
from gateway.metrics import Metrics
from gateway.server.entry import Entry
from gateway.server.guard import Guard
from gateway.workers import Row

PATH = "/metrics"


class MetricsDoor:
    """Answers one page. `app`: with an address of its own."""

    def __init__(self, settings: Settings, entry: Entry, metrics: Metrics, row: Row | None = None) -> None:
        own = settings.metrics
        self.is_apart = bool(own.host)
        self._entry = entry
        self._metrics = metrics
        self._row = row
        self._access: auth.Access | None = None if self.is_apart else entry.access
        if own.key:
            self._access = auth.access((own.key,), (), ())

    @property
    def app(self) -> Starlette:
        """The page alone, behind the same checks of Host."""
        return Starlette(routes=[Route(PATH, self.answer)], middleware=[Middleware(Guard, access=self._entry.access)])

    async def answer(self, request: Request) -> Response:
        """All instruments, or why not."""
        try:
            if self._access is not None:
                self._entry.check_reader(request, self._access)
        except StrettoError as error:
            retry_after = {} if error.retry_after_ms is None else {"Retry-After": str(-(-error.retry_after_ms // 1000))}
            return PlainTextResponse(str(error), error.http_status, retry_after)
        page = await self.own_page()
        if self._row is not None:
            page = await self._row.whole_page(page)
        return Response(page, media_type=CONTENT_TYPE_LATEST)

    async def own_page(self) -> bytes:
        """The instruments of this process. In a thread: 4 ms for our own, and vLLM's are many times as many."""
        return await asyncio.to_thread(generate_latest, self._metrics.registry)
