"""What a ticket grants, for how long, and how often."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from msgspec import structs

from gateway import tickets
from gateway.auth import FULL_RIGHTS, Rights
from gateway.errors import (
    BadMessage,
    ForbiddenOrigin,
    NotPermitted,
    RateLimited,
    TicketExpired,
    TicketUsed,
    Unauthorized,
    UnknownPersona,
    WrongKey,
)
from gateway.tickets import Grant, MemoryKeeper, Tickets, TicketWish, narrowed

KIOSK = Rights(persona="captain", instructions=False, tools=True, holder="k1")
PERSONAS = {"captain", "nurse"}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def office(clock: Clock, keeper: MemoryKeeper | None = None) -> Tickets:
    numbers = itertools.count()
    return Tickets(MemoryKeeper(clock) if keeper is None else keeper, clock, lambda: f"random{next(numbers)}")


async def test_a_ticket_opens_once() -> None:
    made = office(Clock())
    ticket, expires_at = await made.issue(Grant(rights=KIOSK, payload=b"any"), 60)
    assert (ticket, expires_at) == ("tkt_random0", 1060.0)
    grant = await made.read(ticket, None)
    assert (grant.rights, grant.payload) == (KIOSK, b"any")
    await made.spend(grant)
    with pytest.raises(TicketUsed):
        await made.read(ticket, None)


async def test_of_two_who_read_a_ticket_at_once_one_gets_in() -> None:
    made = office(Clock())
    ticket, _ = await made.issue(Grant(rights=KIOSK), 60)
    first, second = await made.read(ticket, None), await made.read(ticket, None)
    await made.spend(second)
    with pytest.raises(TicketUsed):
        await made.spend(first)


async def test_one_that_may_open_many_connections_ends_with_its_time_alone() -> None:
    clock = Clock()
    made = office(clock)
    secret, _ = await made.issue(Grant(rights=KIOSK, is_one_use=False), 60, tickets.REALTIME_PREFIX)
    assert secret.startswith("ek_")
    for _ in range(3):
        await made.spend(await made.read(secret, None))
    clock.now += 60
    with pytest.raises(TicketExpired):
        await made.read(secret, None)


async def test_a_ticket_ends_to_the_second_and_is_told_from_an_unknown_one_for_a_while() -> None:
    clock = Clock()
    made = office(clock)
    ticket, _ = await made.issue(Grant(rights=KIOSK), 5)
    clock.now += 4.999
    await made.read(ticket, None)
    clock.now += 0.001
    with pytest.raises(TicketExpired):
        await made.read(ticket, None)
    clock.now += tickets.GRACE_S
    with pytest.raises(Unauthorized) as caught:
        await made.read(ticket, None)
    assert isinstance(caught.value, WrongKey)


async def test_nobody_gets_a_ticket_for_days() -> None:
    _, expires_at = await office(Clock()).issue(Grant(rights=KIOSK), 1e9)
    assert expires_at == 1000 + tickets.LONGEST_S


@pytest.mark.parametrize("origin", [None, "https://evil.example", "null", "https://app.example.evil", "https://app.example:8443"])
async def test_a_ticket_for_one_page_opens_from_no_other(origin: str | None) -> None:
    made = office(Clock())
    ticket, _ = await made.issue(narrowed(FULL_RIGHTS, TicketWish(origin="https://App.example/"), ()), 60)
    with pytest.raises(ForbiddenOrigin):
        await made.read(ticket, origin)
    await made.read(ticket, "https://app.example")


@pytest.mark.parametrize("ticket", ["", "tkt_", "tkt_random1", "TKT_random0", "tkt_random0 ", "tkt_\udce9", "x" * 10_000])
async def test_what_was_never_issued_opens_nothing(ticket: str) -> None:
    made = office(Clock())
    await made.issue(Grant(rights=KIOSK), 60)
    with pytest.raises(Unauthorized):
        await made.read(ticket, None)


async def test_a_keeper_never_sees_a_ticket() -> None:
    seen: list[object] = []

    class Watched(MemoryKeeper):
        async def keep(self, name: str, holder: str, data: bytes, ttl_s: float) -> bool:
            seen.extend((name, holder, data))
            return await super().keep(name, holder, data, ttl_s)

    ticket, _ = await office(Clock(), Watched(Clock())).issue(Grant(rights=KIOSK), 60)
    assert len(seen) == 3
    assert not any(part in str(value) for value in seen for part in (ticket, "random0"))


@pytest.mark.parametrize(
    ("rights", "wish", "granted"),
    [
        (FULL_RIGHTS, TicketWish(), Rights()),
        (FULL_RIGHTS, TicketWish(persona="nurse", user="ann", tools=False), Rights(persona="nurse", user="ann", tools=False)),
        (KIOSK, TicketWish(), KIOSK),
        (KIOSK, TicketWish(persona="captain", instructions=True, tools=False), structs.replace(KIOSK, tools=False)),
        (structs.replace(KIOSK, tools=False), TicketWish(instructions=True, tools=True), structs.replace(KIOSK, tools=False)),
    ],
)
def test_a_ticket_never_widens_what_its_key_may(rights: Rights, wish: TicketWish, granted: Rights) -> None:
    assert narrowed(rights, wish, PERSONAS).rights == granted


def test_another_persona_than_the_keys_is_refused() -> None:
    with pytest.raises(NotPermitted, match="captain"):
        narrowed(KIOSK, TicketWish(persona="nurse"), PERSONAS)


def test_an_unknown_persona_is_told_before_the_ticket_is_used() -> None:
    with pytest.raises(UnknownPersona, match="captain, nurse"):
        narrowed(FULL_RIGHTS, TicketWish(persona="pirate"), PERSONAS)


async def test_tickets_that_nobody_uses_are_bounded_for_each_key_and_make_room_when_they_end() -> None:
    clock = Clock()
    keeper = MemoryKeeper(clock)
    made = office(clock, keeper)
    for _ in range(tickets.MAX_OF_ONE_KEY):
        await made.issue(Grant(rights=KIOSK), 60)
    with pytest.raises(RateLimited):
        await made.issue(Grant(rights=KIOSK), 60)
    await made.issue(Grant(rights=FULL_RIGHTS), 600)
    clock.now += 60 + tickets.GRACE_S
    await made.issue(Grant(rights=KIOSK), 60)
    assert len(keeper) == 2


async def test_payloads_are_bounded_one_by_one_and_together() -> None:
    clock = Clock()
    made = office(clock)
    with pytest.raises(BadMessage, match="65536"):
        await made.issue(Grant(rights=KIOSK, payload=bytes(tickets.MAX_PAYLOAD_BYTES + 1)), 60)
    n_issued = []
    for holder in ("one", "two", "three", "four", "five"):
        largest = Grant(rights=structs.replace(KIOSK, holder=holder), payload=bytes(tickets.MAX_PAYLOAD_BYTES))
        n_issued.append(0)
        with contextlib.suppress(RateLimited):
            while n_issued[-1] <= tickets.MAX_BYTES // tickets.MAX_PAYLOAD_BYTES:
                await made.issue(largest, 60)
                n_issued[-1] += 1
    assert all(120 <= n < 128 for n in n_issued[:4]), "one key's never keep out another's"
    assert 500 <= sum(n_issued) < tickets.MAX_BYTES // tickets.MAX_PAYLOAD_BYTES
    clock.now += 60 + tickets.GRACE_S
    await made.issue(largest, 60)
