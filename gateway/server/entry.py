"""Who may come in, by whichever door: how often an address may knock, which pages may, and what a key or a ticket opens."""

from __future__ import annotations

import secrets
import time

from starlette.requests import HTTPConnection

from gateway import auth
from gateway.admission import Knocks
from gateway.codecs import native
from gateway.config import Settings
from gateway.errors import RateLimited
from gateway.metrics import Metrics
from gateway.tickets import Grant, MemoryKeeper, TicketKeeper, Tickets, is_ticket


class Entry:
    """Asked by every door before anything else."""

    def __init__(self, settings: Settings, metrics: Metrics, keeper: TicketKeeper | None = None) -> None:
        server = settings.server
        self.access = auth.access(server.keys, server.origins, server.hosts, settings.keys)
        self.tickets = Tickets(MemoryKeeper(time.monotonic) if keeper is None else keeper, time.time, lambda: secrets.token_urlsafe(24))
        self._metrics = metrics
        self._knocks = Knocks(server.handshakes_per_s)
        self._per_s = server.handshakes_per_s

    def check_rate(self, knock: HTTPConnection) -> None:
        """Before any key is looked at, wherever an answer tells whether a key is right. Raises `RateLimited`."""
        address = knock.client.host if knock.client is not None else ""
        if not self._knocks.take(address, time.monotonic()):
            self._metrics.refused.labels(RateLimited.code).inc()
            raise RateLimited(f"More than {self._per_s:g} connections a second from this address.", retry_after_ms=1000)

    async def recognise(self, knock: HTTPConnection, prefix: str) -> Grant:
        """What whoever knocks may do, by key or by ticket; a ticket stays unused until `spend`. `prefix`: of a key in a subprotocol.

        Raises `RateLimited`, `ForbiddenOrigin`, `Unauthorized`, `TicketUsed`, `TicketExpired`.
        """
        self.check_rate(knock)
        headers, offers = knock.headers, knock.scope.get("subprotocols", [])
        origin = headers.get("origin")
        auth.check_origin(self.access, origin, headers.get("host"))
        shown = auth.shown_key(headers, offers, prefix)
        ticket = auth.offered(offers, native.TICKET_PREFIX) or (shown if shown is not None and is_ticket(shown) else None)
        if ticket is not None:
            return await self.tickets.read(ticket, origin)
        return Grant(rights=auth.rights_of(self.access, shown, prefix))

    async def spend(self, grant: Grant) -> None:
        """The last step before a socket is accepted, so that a full house uses no tickets up. Raises `TicketUsed`."""
        await self.tickets.spend(grant)

    def check_reader(self, request: HTTPConnection) -> auth.Rights:
        """Whoever asks over HTTP needs a key: a ticket opens a conversation and nothing else. Raises `RateLimited`, `Unauthorized`."""
        self.check_rate(request)
        return auth.check_key(self.access, request.headers, (), native.KEY_PREFIX)
