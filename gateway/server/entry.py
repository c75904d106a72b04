"""Who may come in, by whichever door: how often an address may knock, which pages may, and what a key or a ticket opens."""

from __future__ import annotations

import contextlib
import logging
import math
import secrets
import time
from collections.abc import Iterator

from msgspec import structs
from starlette.requests import HTTPConnection

from gateway import addresses, auth
from gateway.admission import SPARE_SOCKETS, Crowd, Elsewhere, Guesses, Knocks
from gateway.codecs import native
from gateway.config import Settings
from gateway.errors import RateLimited, WrongKey
from gateway.metrics import Metrics
from gateway.tickets import Grant, MemoryKeeper, TicketKeeper, Tickets, is_ticket

log = logging.getLogger("stretto.entry")


class Entry:
    """Asked by every door before anything else."""

    def __init__(
        self, settings: Settings, metrics: Metrics, keeper: TicketKeeper | None = None, elsewhere: Elsewhere | None = None
    ) -> None:
        server = settings.server
        self.access = auth.access(server.keys, server.origins, server.hosts, settings.keys)
        self.tickets = Tickets(MemoryKeeper(time.monotonic) if keeper is None else keeper, time.time, lambda: secrets.token_urlsafe(24))
        self._server = server
        self._metrics = metrics
        self._proxies = addresses.networks(server.trusted_proxies)
        self._knocks = Knocks(server.handshakes_per_s)
        self._guesses = Guesses(server.failed_keys_per_min)
        self._has_warned = False
        self._crowd = Crowd(server.sockets_per_address, elsewhere)

    async def recognise(self, knock: HTTPConnection, prefix: str) -> Grant:
        """What whoever knocks may do, by key or by ticket; a ticket stays unused until `spend`. `prefix`: of a key in a subprotocol.

        Raises `RateLimited`, `ForbiddenOrigin`, `Unauthorized`, `TicketUsed`, `TicketExpired`, `NotPermitted`.
        """
        with self._counting(knock):
            return await self._recognised(knock, prefix)

    def check_reader(self, request: HTTPConnection, access: auth.Access | None = None) -> auth.Rights:
        """Whoever asks over HTTP needs a key, a client's or one of `access`: a ticket opens a conversation and nothing else.

        Raises `RateLimited`, `Unauthorized`.
        """
        with self._counting(request):
            return auth.check_key(access or self.access, request.headers, (), native.KEY_PREFIX)

    def has_room(self, knock: HTTPConnection) -> bool:
        """Whether its address may hold one more socket open."""
        return self._crowd.has_room(self._address(knock))

    @contextlib.contextmanager
    def place(self, knock: HTTPConnection, *, is_back: bool = False) -> Iterator[None]:
        """One of the sockets that a client may hold open. `is_back`: it comes for an open session. Raises `RateLimited`."""
        address = self._address(knock)
        if not self._crowd.enter(address, SPARE_SOCKETS if is_back else 0):
            raise self._refused(f"More than {self._server.sockets_per_address} sockets are open from this address.", 5.0)
        try:
            yield
        finally:
            self._crowd.leave(address)

    @contextlib.contextmanager
    def _counting(self, knock: HTTPConnection) -> Iterator[None]:
        """Bound how often an address comes, and how often with a wrong key, before any key is looked at. Raises `RateLimited`."""
        address, now = self._address(knock), time.monotonic()
        if not self._knocks.take(address, now):
            raise self._refused(f"More than {self._server.handshakes_per_s:g} connections a second from this address.", 1.0)
        wait_s = self._guesses.wait_s(address, now)
        if wait_s:
            raise self._refused("Too many wrong keys from this address.", wait_s)
        try:
            yield
        except WrongKey:
            self._guesses.failed(address, now)
            raise

    def _refused(self, fault: str, after_s: float) -> RateLimited:
        self._metrics.refused.labels(RateLimited.code).inc()
        return RateLimited(fault, retry_after_ms=math.ceil(after_s * 1000))

    def _address(self, knock: HTTPConnection) -> str:
        peer = knock.client.host if knock.client is not None else ""
        forwarded = knock.headers.getlist("x-forwarded-for")
        if forwarded and not self._has_warned and not addresses.is_trusted(peer, self._proxies):
            self._has_warned = True
            log.warning(
                "X-Forwarded-For from a peer that server.trusted_proxies does not list: its clients count as one", extra={"peer": peer}
            )
        return addresses.counted(addresses.client_of(peer, forwarded, self._proxies))

    async def _recognised(self, knock: HTTPConnection, prefix: str) -> Grant:
        headers, offers = knock.headers, knock.scope.get("subprotocols", [])
        origin = headers.get("origin")
        auth.check_origin(self.access, origin, headers.get("host"))
        shown = auth.shown_key(headers, offers, prefix)
        ticket = auth.offered(offers, native.TICKET_PREFIX) or (shown if shown is not None and is_ticket(shown) else None)
        if ticket is not None:
            grant = await self.tickets.read(ticket, origin)
            return structs.replace(grant, rights=auth.as_of_now(self.access, grant.rights))
        return Grant(rights=auth.rights_of(self.access, shown, prefix))

    async def spend(self, grant: Grant) -> None:
        """The last step before a socket is accepted, so that a full house uses no tickets up. Raises `TicketUsed`."""
        await self.tickets.spend(grant)
