"""Tickets that open a door of every worker: each stays with the worker that made it, and is spent there."""

from __future__ import annotations

from gateway.tickets import KeptTicket, MemoryKeeper
from gateway.workers.line import FindTicket, SpendTicket
from gateway.workers.siblings import Siblings


class SharedKeeper:
    """A `TicketKeeper` over this worker's own and its siblings'."""

    def __init__(self, own: MemoryKeeper, siblings: Siblings) -> None:
        self._own, self._siblings = own, siblings

    async def keep(self, name: str, holder: str, data: bytes, ttl_s: float) -> bool:
        """As promised; the room is each worker's own."""
        return await self._own.keep(name, holder, data, ttl_s)

    async def find(self, name: str) -> KeptTicket | None:
        """As promised."""
        if (found := await self._own.find(name)) is not None:
            return found
        answers = await self._siblings.ask_all(FindTicket(name=name), KeptTicket | None)  # type: ignore[arg-type]  # a union is no type to mypy
        return next((kept for kept in answers.values() if kept is not None), None)

    async def spend(self, name: str) -> bool:
        """As promised: one worker keeps it, and that one decides."""
        if await self._own.find(name) is not None:
            return await self._own.spend(name)
        return any((await self._siblings.ask_all(SpendTicket(name=name), bool)).values())
