"""The book of the keys for the workers of one machine: the parent keeps it, since it outlives each of them.

A worker's line to it stands as long as the worker does. When it ends, the worker's conversations are over, and what they used stays.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.ledger import Ledger
from gateway.quota import Report, Told
from gateway.workers.line import Broken, Line, dialed

ANSWER_S = 1.0  # of a parent that is alive
REST_S = 1.0  # before one that did not answer is asked again

log = logging.getLogger("stretto.workers")


class BookKeeper:
    """In the parent. `now`: seconds of a clock that never jumps."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._ledger = Ledger()
        self._now = now
        self._line_of: dict[str, Line] = {}

    async def run(self, path: Path) -> None:
        """Answer there until cancelled."""
        async with asyncio.TaskGroup() as tasks:

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                tasks.create_task(self._answer(Line(reader, writer)), name="book of a worker")

            async with await asyncio.start_unix_server(begin, path):
                await asyncio.Event().wait()

    async def _answer(self, from_it: Line) -> None:
        holder = ""
        try:
            holder = await from_it.receive(str)
            self._line_of[holder] = from_it
            while True:
                reports = await from_it.receive(list[Report])
                await from_it.send([self._ledger.settle(holder, report, self._now()) for report in reports])
        except Broken:
            log.debug("a worker hung up")
        except Exception:  # where an answer meets its owner: the other workers must go on
            log.exception("a worker could not be answered")
        finally:
            from_it.close()
            if self._line_of.get(holder) is from_it:  # it has not called again meanwhile
                del self._line_of[holder]
                self._ledger.leave(holder)


class ParentBook:
    """In a worker: a `Book`."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._holder = secrets.token_hex(8)
        self._line: Line | None = None
        self._rests_until = float("-inf")
        self._asking = asyncio.Lock()  # one question at a time, each with its own answer

    async def settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
        """As promised."""
        async with self._asking:
            return await self._settle(reports)

    async def _settle(self, reports: Sequence[Report]) -> Sequence[Told | None] | None:
        if self._now() < self._rests_until:
            return None
        is_answered = False
        try:
            async with asyncio.timeout(ANSWER_S):
                told = await self._asked(reports)
            is_answered = True
            return told
        except (Broken, TimeoutError):
            self._rests_until = self._now() + REST_S
            return None
        finally:
            if not is_answered:  # an answer to this question must never be taken for one to the next
                self.close()

    def close(self) -> None:
        """Hang up."""
        if self._line is not None:
            self._line.close()
            self._line = None

    async def _asked(self, reports: Sequence[Report]) -> list[Told]:
        if self._line is None:
            self._line = await dialed(self._path)
            await self._line.send(self._holder)
        await self._line.send(list(reports))
        return await self._line.receive(list[Told])
