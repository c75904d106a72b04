"""Those who keep books of conversations, as the settings ask for them: built at the start, closed after the last turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from gateway.capture import Captures
from gateway.config import Settings
from gateway.metrics import Metrics
from gateway.moderation import HttpModerator
from gateway.turn import TurnWatcher
from gateway.usage import UsageBooks


class Keeper(Protocol):
    """Has work to finish at the end."""

    def close(self) -> None:
        """Finish what is left, within a deadline of its own; blocks as long."""


class Watching:
    """`watchers`: who is told of every turn. Nothing is begun for what is off. Raises `ConfigError`."""

    def __init__(self, settings: Settings, metrics: Metrics, now: Callable[[], float]) -> None:
        self.watchers: tuple[TurnWatcher, ...] = ()
        self.captures = Captures(settings.capture, metrics, now) if settings.capture.folder else None
        self._keepers: list[Keeper] = [self.captures] if self.captures is not None else []
        if settings.tracing.endpoint:
            from gateway.tracing import Tracer

            tracer = Tracer(settings.tracing, metrics, now)
            self.watchers += (tracer,)
            self._keepers.append(tracer)
        self.moderator = self._make_moderator(settings, metrics)
        if settings.usage.file or settings.usage.url:
            books = UsageBooks(settings.usage, metrics)
            self.watchers += (books,)
            self._keepers.append(books)

    def _make_moderator(self, settings: Settings, metrics: Metrics) -> HttpModerator | None:
        return HttpModerator(settings.moderation, metrics) if settings.moderation.url else None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Until all turns are over; the keepers then finish side by side."""
        try:
            yield
        finally:
            if self.moderator is not None:
                await self.moderator.close()
            await asyncio.gather(*(asyncio.to_thread(keeper.close) for keeper in self._keepers))
