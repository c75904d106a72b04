"""Tickets: what lets a page or an app in without the key of whoever runs it.

Decides what a ticket grants, whether it still does, and that it does so once. Pure: clock and chance are handed in. A ticket is 192 random
bits; what it grants stays with a `TicketKeeper`, this process's memory or one that several gateways share, under the ticket's digest, so
that nothing that a keeper shows opens a door. `expires_at` is wall time, since gateways of several machines must agree on it; a keeper
forgets by its own clock as well.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Collection
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta, Struct, structs

from gateway.auth import Rights
from gateway.errors import BadMessage, ForbiddenOrigin, NotPermitted, RateLimited, TicketExpired, TicketUsed, UnknownPersona, WrongKey

PREFIX = "tkt_"
REALTIME_PREFIX = "ek_"  # as OpenAI's clients know their ephemeral keys
LONGEST_S = 7200.0  # what OpenAI gives a client secret at most
GRACE_S = 60.0  # for which a ticket that is over is still told from one that never was
MAX_TICKETS = 10_000  # waiting in one keeper
MAX_OF_ONE_KEY = 2_500  # so that one key's tickets never keep out the others'
MAX_PAYLOAD_BYTES = 65_536
MAX_BYTES = 32 * 1024 * 1024
MAX_BYTES_OF_ONE_KEY = MAX_BYTES // 4  # as many as its tickets

Name = Annotated[str, Meta(max_length=256)]


class TicketWish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/tickets`: what the holder may do, never more than the key that asks. `ttl_s` None: the server's choice."""

    persona: Name = ""
    user: Name = ""
    origin: Name = ""
    ttl_s: Annotated[float, Meta(ge=1, le=600)] | None = None
    instructions: bool = True
    tools: bool = True


class Grant(Struct, frozen=True, kw_only=True):
    """What somebody at a door may do. `payload`: what the ticket's maker sent along, bytes of its own format. A key's has no `name`."""

    rights: Rights
    name: str = ""
    payload: bytes = b""
    origin: str = ""
    expires_at: float = 0.0
    is_one_use: bool = True


class KeptTicket(Struct, frozen=True):
    """What a keeper has under a name."""

    data: bytes
    is_spent: bool


class TicketKeeper(Protocol):
    """Name -> data, until `ttl_s` from now are over; the same for all gateways that use the keeper."""

    async def keep(self, name: str, holder: str, data: bytes, ttl_s: float) -> bool:
        """Keep data under a new name; False where there is no room, for this holder or at all."""

    async def find(self, name: str) -> KeptTicket | None:
        """What is kept, spent or not."""

    async def spend(self, name: str) -> bool:
        """True for the first caller alone, of all gateways."""


class Tickets:
    """Issues and reads tickets. `now`: wall time in seconds; `chance`: 192 new random bits as text."""

    def __init__(self, keeper: TicketKeeper, now: Callable[[], float], chance: Callable[[], str]) -> None:
        self._keeper = keeper
        self._now = now
        self._chance = chance

    async def issue(self, grant: Grant, ttl_s: float, prefix: str = PREFIX) -> tuple[str, float]:
        """A ticket and when it ends. Raises `BadMessage` on a payload that is too large, `RateLimited` when too many wait to be used."""
        if len(grant.payload) > MAX_PAYLOAD_BYTES:
            raise BadMessage(f"The ticket would carry {len(grant.payload)} bytes; expected at most {MAX_PAYLOAD_BYTES}.")
        ticket = prefix + self._chance()
        ttl_s = min(ttl_s, LONGEST_S)
        expires_at = self._now() + ttl_s
        data = msgspec.msgpack.encode(structs.replace(grant, name="", expires_at=expires_at))
        if not await self._keeper.keep(_name(ticket), grant.rights.holder, data, ttl_s + GRACE_S):
            raise RateLimited("Too many tickets wait to be used; use some, or let them end.", retry_after_ms=10_000)
        return ticket, expires_at

    async def read(self, ticket: str, origin: str | None) -> Grant:
        """What a ticket grants to a client from this page (None: no browser); it stays unused.

        Raises `WrongKey` (never issued here, or long over), `TicketExpired`, `TicketUsed`, `ForbiddenOrigin`.
        """
        name = _name(ticket)
        kept = await self._keeper.find(name)
        if kept is None:
            raise WrongKey("The ticket is not known here; expected one that POST /v1/tickets gave out a moment ago.")
        grant = msgspec.msgpack.decode(kept.data, type=Grant)
        if self._now() >= grant.expires_at:
            raise TicketExpired("The ticket's time is over; ask for a new one.")
        if kept.is_spent:
            raise TicketUsed("The ticket was used before; each opens one connection. Ask for a new one.")
        if grant.origin and (origin or "").rstrip("/").lower() != grant.origin:
            raise ForbiddenOrigin(f"The ticket was made for pages of {grant.origin}.")
        return structs.replace(grant, name=name)

    async def spend(self, grant: Grant) -> None:
        """Use it up, where it came from a ticket that opens one connection. Raises `TicketUsed`."""
        if grant.name and grant.is_one_use and not await self._keeper.spend(grant.name):
            raise TicketUsed("The ticket was used before; each opens one connection. Ask for a new one.")


def is_ticket(text: str) -> bool:
    """Whether what was shown as a key looks like a ticket."""
    return text.startswith((PREFIX, REALTIME_PREFIX))


def narrowed(rights: Rights, wish: TicketWish, personas: Collection[str]) -> Grant:
    """What the asked ticket grants. Raises `NotPermitted` where it would be more than the key's own rights, `UnknownPersona`."""
    if wish.persona and wish.persona not in personas:
        raise UnknownPersona(f"There is no persona {wish.persona[:80]!r}; expected one of: {', '.join(sorted(personas)) or 'none here'}.")
    if rights.persona and wish.persona not in ("", rights.persona):
        raise NotPermitted(f"This key speaks as {rights.persona!r}; its tickets can speak as no other persona.")
    narrow = structs.replace(
        rights,
        persona=wish.persona or rights.persona,
        instructions=rights.instructions and wish.instructions,
        tools=rights.tools and wish.tools,
        user=wish.user,
    )
    return Grant(rights=narrow, origin=wish.origin.rstrip("/").lower())


class MemoryKeeper:
    """A `TicketKeeper` that ends with its process. `now`: seconds of a clock that never jumps."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kept: dict[str, KeptTicket] = {}
        self._ends: list[tuple[float, str, str]] = []  # a heap of (when, name, holder)
        self._n_of: Counter[str] = Counter()
        self._bytes_of: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._kept)

    async def keep(self, name: str, holder: str, data: bytes, ttl_s: float) -> bool:
        """As the promise says."""
        self._forget()
        if len(self._kept) >= MAX_TICKETS or self._bytes_of.total() + len(data) > MAX_BYTES:
            return False
        if self._n_of[holder] >= MAX_OF_ONE_KEY or self._bytes_of[holder] + len(data) > MAX_BYTES_OF_ONE_KEY:
            return False
        self._kept[name] = KeptTicket(data, is_spent=False)
        self._n_of[holder] += 1
        self._bytes_of[holder] += len(data)
        heapq.heappush(self._ends, (self._now() + ttl_s, name, holder))
        return True

    async def find(self, name: str) -> KeptTicket | None:
        """As the promise says."""
        self._forget()
        return self._kept.get(name)

    async def spend(self, name: str) -> bool:
        """As the promise says."""
        kept = self._kept.get(name)
        if kept is None or kept.is_spent:
            return False
        self._kept[name] = KeptTicket(kept.data, is_spent=True)
        return True

    def _forget(self) -> None:
        while self._ends and self._ends[0][0] <= self._now():
            _, name, holder = heapq.heappop(self._ends)
            self._bytes_of[holder] -= len(self._kept.pop(name).data)
            self._n_of[holder] -= 1
            if not self._n_of[holder]:
                del self._n_of[holder], self._bytes_of[holder]


def _name(ticket: str) -> str:
    return hashlib.sha256(ticket.encode("utf-8", "replace")).hexdigest()
