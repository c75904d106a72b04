"""How many texts a voice speaks at once, and how many may wait for that: a bounded, fair queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from engine.api import EngineBusy


class Slots:
    """`limit` at once, `waiting` more in line for at most `wait_s` seconds; the others are refused."""

    def __init__(self, engine: str, limit: int, waiting: int, wait_s: float) -> None:
        self._engine = engine
        self._free = asyncio.Semaphore(limit)
        self._places = waiting
        self._wait_s = wait_s

    @asynccontextmanager
    async def hold(self) -> AsyncGenerator[None, None]:
        """A slot, in order of arrival; a cancel while waiting leaves the line. Raises `EngineBusy`."""
        if self._free.locked():
            await self._wait_in_line()
        else:
            await self._free.acquire()
        try:
            yield
        finally:
            self._free.release()

    async def _wait_in_line(self) -> None:
        if self._places <= 0:
            raise EngineBusy(f"{self._engine}: all voices speak and the line is full")
        self._places -= 1
        try:
            async with asyncio.timeout(self._wait_s):
                await self._free.acquire()
        except TimeoutError as error:
            raise EngineBusy(f"{self._engine}: no voice became free within {self._wait_s} s") from error
        finally:
            self._places += 1
