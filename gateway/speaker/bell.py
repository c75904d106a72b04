"""A wait for one of two things, time or a sign, as cheap as a wait for each frame must be."""

from __future__ import annotations

import asyncio


class Bell:
    """Wakes its one waiter when it is rung, or when the time is over; nobody waits: nothing happens.

    `asyncio.timeout` around an event does the same at three times the cost, because it ends the wait by cancelling the task.
    """

    def __init__(self) -> None:
        self._waiter: asyncio.Future[None] | None = None

    async def wait(self, seconds: float | None) -> None:
        """Return at the next `ring`, or after `seconds` (None: never)."""
        loop = asyncio.get_running_loop()
        waiter = self._waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    def ring(self) -> None:
        """Wake whoever waits."""
        if self._waiter is not None:
            _wake(self._waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
