"""What a product's moderation may see of a turn before others do: the user's words, and each segment of the reply.

The words are judged while the model writes already; nothing of the reply leaves before the verdict. A segment is judged before its text
and its sound leave. The moderator keeps its own deadline, so a listener waits that much longer at most. `say` is the product's own text:
not judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, Protocol

from msgspec import Struct

from gateway.speech.stream import SpokenSegment
from gateway.turn.plan import Plan
from gateway.turn.record import Caller

Kind = Literal["input", "segment"]


class Subject(Struct, frozen=True, kw_only=True):
    """What is to be judged. `index`: of the segment."""

    kind: Kind
    text: str
    session_id: str
    turn: int
    language: str
    caller: Caller
    index: int = 0


class Moderator(Protocol):
    """A product's judgement. `kinds`: what it wants to see."""

    kinds: frozenset[Kind]

    async def allows(self, subject: Subject) -> bool:
        """Whether it may be heard. Answers within its deadline, and never raises: what it says when it fails is its setting."""


class Review:
    """The judgements of one turn. `let_out(segment, decided_s)` is called for each segment that may be heard, in order."""

    def __init__(self, moderator: Moderator, plan: Plan, let_out: Callable[[SpokenSegment, float], None]) -> None:
        self._moderator, self._plan, self._let_out = moderator, plan, let_out
        self._held: asyncio.Queue[tuple[SpokenSegment, float] | None] = asyncio.Queue()
        is_ours = plan.say is not None
        self.input = "" if is_ours or "input" not in moderator.kinds else newest_words(plan)
        self.holds_segments = not is_ours and "segment" in moderator.kinds

    async def allows_input(self) -> bool:
        """Whether the turn may answer the user's words."""
        return await self._moderator.allows(self._subject("input", self.input, 0))

    def hold(self, segment: SpokenSegment, decided_s: float) -> None:
        """Judge a segment before it leaves."""
        self._held.put_nowait((segment, decided_s))

    def finish(self) -> None:
        """No more segments come."""
        self._held.put_nowait(None)

    async def run(self) -> SpokenSegment | None:
        """Until all segments have left, or one may not: that one."""
        while (held := await self._held.get()) is not None:
            segment, decided_s = held
            if not await self._moderator.allows(self._subject("segment", segment.text, segment.index)):
                return segment
            self._let_out(segment, decided_s)
        return None

    def _subject(self, kind: Kind, text: str, index: int) -> Subject:
        plan = self._plan
        return Subject(
            kind=kind,
            text=text,
            session_id=plan.session_id,
            turn=plan.number,
            language=plan.language,
            caller=plan.caller,
            index=index,
        )


def newest_words(plan: Plan) -> str:
    """What the user said last; "" where the assistant speaks first."""
    return next((message.text for message in reversed(plan.messages) if message.role == "user"), "")
