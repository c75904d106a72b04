"""The way out of a turn. Open from the start, unless something holds it: nothing of a draft leaves, and nothing counts, before its commit;
nothing of a turn whose input is judged before the verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Literal

from gateway.events import ServerEvent
from gateway.outbox import Outbox

Hold = Literal["draft", "input"]


class Gate:
    """Keeps what a held turn would have sent and counted, in order; it is bounded by the tokens of one reply."""

    def __init__(self, outbox: Outbox, holds: set[Hold]) -> None:
        self._outbox = outbox
        self._kept: list[Callable[[], None]] = []
        self._opened = asyncio.Event()
        self._holds = holds
        if not holds:
            self._opened.set()

    @property
    def is_draft(self) -> bool:
        """Whether it waits for its commit."""
        return "draft" in self._holds

    @property
    def is_open(self) -> bool:
        """Whether nothing holds it (any more)."""
        return self._opened.is_set()

    def put(self, event: ServerEvent) -> None:
        """Send a frame, now or at the commit."""
        self.do(partial(self._outbox.put, event))

    def do(self, action: Callable[[], None]) -> None:
        """Do what others can notice, now or at the commit."""
        if self.is_open:
            action()
        else:
            self._kept.append(action)

    def lift(self, hold: Hold) -> None:
        """The draft is a turn from now on, or its input may be answered."""
        self._holds.discard(hold)
        if self._holds or self.is_open:
            return
        kept, self._kept = self._kept, []
        self._opened.set()
        for action in kept:
            action()

    async def passed(self) -> None:
        """Wait until the gate is open."""
        await self._opened.wait()

    def drop(self, turn: int) -> None:
        """Nothing more of this turn leaves but its end; of a draft not even that."""
        self.clear()
        if self.is_open:
            self._outbox.drop_turn(turn)

    def clear(self) -> None:
        """What was kept never leaves, and no verdict is waited for."""
        self._kept.clear()
        self.lift("input")
