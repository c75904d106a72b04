"""A recognizer's front desk: callers wait in a fair line, some are served at once, each in its own task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from engine.api import EngineError, Transcript, Transcription
from engine.asr.line import Line

Serve = Callable[[Transcription], Awaitable[Transcript]]


class _Caller:
    """One call of `transcribe`. `turn` is done when it leaves the line: True to be served, False where that is needless."""

    def __init__(self, wanted: Transcription) -> None:
        self.wanted = wanted
        self.turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._is_needless = False
        self.scope = asyncio.timeout(None)  # moved to now to end a service early
        self.is_served = False

    def is_needless(self) -> bool:
        """Whether `dismiss` was called."""
        return self._is_needless

    def dismiss(self) -> None:
        """Nobody needs the answer any more."""
        if self._is_needless:
            return
        self._is_needless = True
        if self.is_served:
            self.scope.reschedule(asyncio.get_running_loop().time())
        elif not self.turn.done():
            self.turn.set_result(False)


class Desk:
    """`parallel` services at once; a final never waits for more than the partials that run already. `room` of each kind may wait."""

    def __init__(self, serve: Serve, parallel: int, room: int) -> None:
        self._serve = serve
        self._parallel = parallel
        self._line: Line[_Caller] = Line(room)
        self._running: set[_Caller] = set()

    @property
    def n_waiting(self) -> int:
        """Callers in line."""
        return len(self._line)

    async def transcribe(self, wanted: Transcription) -> Transcript | None:
        """As `Recognizer.transcribe`."""
        caller = _Caller(wanted)
        for needless in self._line.add(caller):
            needless.dismiss()
        if wanted.is_final:
            for running in self._running:
                if running.wanted.utterance == wanted.utterance:
                    running.dismiss()
        self._call_next()
        try:
            return await self._serve_one(caller) if await caller.turn else None
        finally:
            self._line.remove(caller)
            self._running.discard(caller)
            self._call_next()

    def cancel(self, utterance: str) -> None:
        """End all calls for an utterance; they return None."""
        for caller in self._line.remove_utterance(utterance):
            caller.dismiss()
        for caller in self._running:
            if caller.wanted.utterance == utterance:
                caller.dismiss()

    async def _serve_one(self, caller: _Caller) -> Transcript | None:
        if caller.is_needless():  # dismissed between its turn and this step
            return None
        try:
            async with caller.scope:
                caller.is_served = True
                transcript = await self._serve(caller.wanted)
            self._line.answered(caller)
            return transcript
        except (TimeoutError, EngineError):
            if caller.is_needless():
                return None
            raise
        finally:
            caller.is_served = False

    def _call_next(self) -> None:
        """Call those for whom there is a place."""
        while (caller := self._next()) is not None:
            if not caller.turn.done():  # else its task was cancelled and is about to leave
                self._running.add(caller)
                caller.turn.set_result(True)

    def _next(self) -> _Caller | None:
        n_finals = sum(caller.wanted.is_final for caller in self._running)
        if n_finals >= self._parallel:
            return None
        return self._line.take(finals_only=len(self._running) >= self._parallel)
