"""One worker's view of the row it stands in: what it shares, and what it asks the others."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from msgspec import structs

from gateway.config import Settings
from gateway.tickets import MemoryKeeper
from gateway.workers.book import ParentBook
from gateway.workers.crowds import SharedCrowds
from gateway.workers.line import Page
from gateway.workers.page import merged
from gateway.workers.places import SharedPlaces
from gateway.workers.siblings import Siblings
from gateway.workers.tickets import SharedKeeper
from gateway.workers.worker import Worker

LOOK_S = 1.0  # after the parent


class Row:
    """`places` for the admission, `crowds` for the listener, `tickets` for the doors, `book` for the keys; `siblings` know the rest."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.places = SharedPlaces(worker.places, worker.number, worker.count)
        self.crowds = SharedCrowds(worker.crowds, worker.number, worker.count)
        self.siblings = Siblings(worker)
        self.own_tickets = MemoryKeeper(time.monotonic)
        self.tickets = SharedKeeper(self.own_tickets, self.siblings)
        self.book = ParentBook(worker.book, time.monotonic)

    def share_of(self, settings: Settings) -> Settings:
        """What one worker allows an address, so that all of them together allow what the settings say."""
        server, count = settings.server, self.worker.count
        per_min = max(1, server.failed_keys_per_min // count)
        server = structs.replace(server, handshakes_per_s=server.handshakes_per_s / count, failed_keys_per_min=per_min)
        return structs.replace(settings, server=server)

    async def whole_page(self, own: bytes) -> bytes:
        """This worker's page of metrics and the others', as one."""
        pages = await self.siblings.ask_all(Page(), bytes)
        return await asyncio.to_thread(merged, {**pages, self.worker.number: own})

    async def follow_parent(self, stop: Callable[[], None]) -> None:
        """Stop when the parent is gone, for nobody would start this worker again, or end it. Runs until cancelled."""
        parent = os.getppid()
        while os.getppid() == parent:
            await asyncio.sleep(LOOK_S)
        stop()
