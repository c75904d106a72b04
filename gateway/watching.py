"""Those who keep books of conversations, as the settings ask for them: built at the start, closed after the last turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from gateway.config import Settings
from gateway.metrics import Metrics
from gateway.turn import TurnWatcher


class Keeper(TurnWatcher, Protocol):
    """Keeps books of turns until it is closed."""

    def close(self) -> None:
        """Finish what is left, within a deadline of its own; blocks as long."""


class Watching:
    """Nothing is imported or begun for what is off. Raises `ConfigError`."""

    def __init__(self, settings: Settings, metrics: Metrics, now: Callable[[], float]) -> None:
        self._keepers: list[Keeper] = []
        if settings.tracing.endpoint:
            from gateway.tracing import Tracer

            self._keepers.append(Tracer(settings.tracing, metrics, now))

    @property
    def watchers(self) -> tuple[TurnWatcher, ...]:
        """Who is told of every turn."""
        return tuple(self._keepers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until all turns are over; the keepers then finish side by side."""
        try:
            yield
        finally:
            await asyncio.gather(*(asyncio.to_thread(keeper.close) for keeper in self._keepers))
