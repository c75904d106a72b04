"""One reply as it arrives: events of a turn, for any number of readers at any pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from gateway.client.faults import ConversationError
from gateway.errors import ReplyLost
from gateway.events import AudioFrame, ErrorRaised, SegmentDecided, ServerEvent, TextDelta, Timeline, TurnDone

_T = TypeVar("_T")


class Reply:
    """A turn's events in order. They are kept as long as the reply is (the server bounds its length), so nothing is missed.

    Iterating waits for what has not arrived and ends with the turn. Raises `ConversationLost` where the connection is gone.
    """

    def __init__(self, turn: int, asked_s: float) -> None:
        self.turn = turn
        self.asked_s = asked_s
        self.item_id: str | None = None
        self._events: list[tuple[float, ServerEvent]] = []
        self._changed = asyncio.Event()
        self._done: TurnDone | None = None
        self._fault: ConversationError | None = None

    @property
    def text(self) -> str:
        """The caption so far."""
        return "".join(event.text for _, event in self._events if isinstance(event, TextDelta))

    @property
    def is_over(self) -> bool:
        """The turn is done, or the conversation is lost."""
        return self._done is not None or self._fault is not None

    def timed(self) -> Arrivals[tuple[float, ServerEvent]]:
        """(milliseconds since the request was sent, event) of every event."""
        return Arrivals(self, lambda arrived_s, event: ((arrived_s - self.asked_s) * 1000, event))

    def __aiter__(self) -> Arrivals[ServerEvent]:
        return Arrivals(self, lambda _, event: event)

    def segments(self) -> Arrivals[SegmentDecided]:
        """The text, sentence by sentence, as it is decided."""
        return Arrivals(self, lambda _, event: event if isinstance(event, SegmentDecided) else None)

    def audio(self) -> Arrivals[AudioFrame]:
        """The sound, frame by frame."""
        return Arrivals(self, lambda _, event: event if isinstance(event, AudioFrame) else None)

    async def finished(self) -> TurnDone:
        """Wait for the end of the turn: played out, interrupted or failed."""
        async for event in Arrivals(self, lambda _, event: event if isinstance(event, TurnDone) else None):
            return event
        raise AssertionError("a reply ends with turn.done or raises")

    async def arrival(self, position: int) -> tuple[float, ServerEvent] | None:
        """The event at `position` and when it came; waits for it. None: the turn ended before. Raises `ConversationLost`."""
        while position >= len(self._events):
            if self._fault is not None:
                raise self._fault
            if self._done is not None:
                return None
            await self._changed.wait()
        return self._events[position]

    def add(self, event: ServerEvent, now_s: float) -> None:
        """For the conversation's reader."""
        self._events.append((now_s, event))
        if isinstance(event, TurnDone):
            self._done = event
        self._wake()

    def fail(self, fault: ConversationError) -> None:
        """For the conversation's reader: nothing more will come."""
        if not self.is_over:
            self._fault = fault
            self._wake()

    def lose(self, now_s: float) -> None:
        """For the conversation's reader: the gateway that made it is gone, and the next one does not know of it."""
        if self.is_over:
            return
        lost = ReplyLost("The gateway that made this reply is gone; the rest of it is lost.")
        self.add(ErrorRaised(code=lost.code, message=str(lost), retryable=lost.retryable, turn=self.turn), now_s)
        self.add(TurnDone(turn=self.turn, status="failed", timeline=Timeline()), now_s)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


class Arrivals(Generic[_T]):
    """An iterator over a reply's events that `pick` takes; a plain one, so that breaking off a loop leaves nothing to close."""

    def __init__(self, reply: Reply, pick: Callable[[float, ServerEvent], _T | None]) -> None:
        self._reply = reply
        self._pick = pick
        self._position = 0

    def __aiter__(self) -> Arrivals[_T]:
        return self

    async def __anext__(self) -> _T:
        while True:
            arrival = await self._reply.arrival(self._position)
            if arrival is None:
                raise StopAsyncIteration
            self._position += 1
            picked = self._pick(*arrival)
            if picked is not None:
                return picked
