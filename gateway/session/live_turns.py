"""The turns of a session that are on their way: thought of, spoken, played out, or waiting for their listener's last word."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from gateway.errors import TooManyReplies, UnknownTurn
from gateway.events import ReportPlayout, ToolResult
from gateway.turn import Turn

MAX_FLOORLESS = 4  # out-of-band replies at once: classifiers and summaries; each one is a model request beside the conversation


class LiveTurns:
    """Each with the task that makes it, or that settles it."""

    def __init__(self) -> None:
        self._live: dict[int, tuple[Turn, asyncio.Task[None]]] = {}

    def __iter__(self) -> Iterator[Turn]:
        return iter([turn for turn, _ in self._live.values()])

    def find(self, number: int) -> Turn | None:
        """The turn with this number, while it lives."""
        live = self._live.get(number)
        return None if live is None else live[0]

    def put(self, turn: Turn, task: asyncio.Task[None]) -> None:
        """A turn begins, or another task sees to it now."""
        self._live[turn.number] = (turn, task)

    def remove(self, turn: Turn) -> None:
        """It is over."""
        self._live.pop(turn.number, None)

    def cancel(self, turn: Turn) -> None:
        """End the task that sees to it."""
        self._live[turn.number][1].cancel()

    def discard(self) -> None:
        """The session ends: nothing of any turn is wanted."""
        for turn, task in self._live.values():
            turn.discard()
            task.cancel()

    def check_room(self) -> None:
        """Raises `TooManyReplies` where no further out-of-band reply may begin."""
        if sum(not turn.plan.has_floor for turn in self) >= MAX_FLOORLESS:
            raise TooManyReplies(f"{MAX_FLOORLESS} out-of-band replies are on their way; expected to wait for one of them.")

    def take_result(self, number: int, event: ToolResult) -> None:
        """Hand a result to the turn that waits; the last one lets it go on."""
        turn = self.find(number)
        if turn is not None:
            turn.take_result(event.call_id, event.output)

    def report_playout(self, event: ReportPlayout, n_turns: int) -> None:
        """What a client has played. Raises `UnknownTurn` for one that never was."""
        turn = self.find(event.turn)
        if turn is not None:
            turn.report_playout(event.played_ms, final=event.final)
        elif not 0 < event.turn <= n_turns:
            raise UnknownTurn(f"There was no turn {event.turn}.")
