"""The way out of a turn. Open from the start, but for a draft: of that nothing leaves, and nothing counts, before its commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from gateway.events import ServerEvent
from gateway.outbox import Outbox


class Gate:
    """Keeps what a draft would have sent and counted, in order; a draft is bounded by the tokens of one reply."""

    def __init__(self, outbox: Outbox, *, is_open: bool) -> None:
        self._outbox = outbox
        self._kept: list[Callable[[], None]] = []
        self._opened = asyncio.Event()
        if is_open:
            self._opened.set()

    @property
    def is_open(self) -> bool:
        """Whether this turn is no draft (any more)."""
        return self._opened.is_set()

    def put(self, event: ServerEvent) -> None:
        """Send a frame, now or at the commit. Raises `SlowReader`."""
        self.do(partial(self._outbox.put, event))

    def do(self, action: Callable[[], None]) -> None:
        """Do what others can notice, now or at the commit."""
        if self.is_open:
            action()
        else:
            self._kept.append(action)

    def open(self) -> None:
        """The draft is a turn from now on."""
        kept, self._kept = self._kept, []
        self._opened.set()
        for action in kept:
            action()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        await self._opened.wait()

    def drop(self, turn: int) -> None:
        """Nothing more of this turn leaves but its end."""
        if self.is_open:
            self._outbox.drop_turn(turn)
        self._kept.clear()
