"""People who talk while things break: what each of them saw, and when.

Three kinds, so that a fault has somebody whom it must not touch: talkers (model and voice), sayers (a voice without the model) and readers
(the model without a voice); with real ears speakers, too (speaker.py). Whoever loses a conversation begins a new one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal

from msgspec import Struct

from gateway.client import Conversation, ConversationError, ConversationLost, Refused, Reply, connect
from gateway.events import ErrorRaised, SegmentDecided, SegmentDone, StartSession, TextDelta, TurnDone

Role = Literal["talker", "sayer", "reader", "speaker"]
Pause = tuple[float, float]  # seconds between two turns: at least, at most
SHORT: Pause = (0.3, 0.3)
Kind = Literal["answered", "told", "ended", "lost"]
PHRASE = "One moment, please."  # what sayers let it say; a configured phrase


class Seen(Struct, frozen=True, kw_only=True):
    """One thing that somebody saw. `since_s`: when they asked, or when what they saw last had come. `word`: code or status."""

    who: int
    kind: Kind
    at_s: float
    asked_s: float
    since_s: float
    word: str = ""


class Person:
    """One of the crowd, in a task of their own."""

    def __init__(self, number: int, role: Role, url: str, now: Callable[[], float], pause: Pause = SHORT) -> None:
        self.number, self.role, self.url = number, role, url
        self.seen: list[Seen] = []
        self.asked_s: float | None = None  # of the turn that is on its way
        self.n_resumes = 0
        self._now, self._pause = now, pause  # between turns, and before another attempt

    def pause_s(self) -> float:
        """Of this time."""
        return random.uniform(*self._pause)

    def waits(self) -> bool:
        """Whether nothing has come of what they asked."""
        return self.asked_s is not None and not (self.seen and self.seen[-1].asked_s == self.asked_s)

    async def talk(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(random.random() * self._pause[1])  # not all in step
        while True:
            with suppress(ConversationError):
                start = StartSession(output="text" if self.role == "reader" else "audio")
                async with connect(self.url, start=start, resume_s=10.0) as conversation:
                    await self._converse(conversation)
            self.asked_s = None
            await asyncio.sleep(self.pause_s())

    async def _converse(self, conversation: Conversation) -> None:
        while True:
            asked_s = self.asked_s = self._now()
            try:
                reply = await (conversation.say(PHRASE) if self.role == "sayer" else conversation.text("Tell me of the sea."))
                await self._listen(reply, asked_s)
            except Refused as error:
                self._note("told", asked_s, asked_s, error.code)
            except ConversationError as error:
                self._note("lost", asked_s, asked_s, str(error.close_code) if isinstance(error, ConversationLost) else type(error).__name__)
                raise
            finally:
                self.n_resumes = max(self.n_resumes, conversation.n_resumes)
            self.asked_s = None
            await asyncio.sleep(self.pause_s())

    async def _listen(self, reply: Reply, asked_s: float) -> None:
        since_s = decided_s = asked_s  # the model's last sign of life; when the voice was last given something
        async for event in reply:
            match event:
                case TextDelta():
                    since_s = self._now()
                case SegmentDecided():
                    since_s = decided_s = self._now()
                    self._note("answered", asked_s, since_s)
                case SegmentDone():
                    decided_s = self._now()  # the next one may have waited for it
                case ErrorRaised(code=code):
                    self._note("told", asked_s, decided_s if code == "tts_failed" else since_s, code)
                case TurnDone(status=status):
                    self._note("ended", asked_s, since_s, status)

    def _note(self, kind: Kind, asked_s: float, since_s: float, word: str = "") -> None:
        self.seen.append(Seen(who=self.number, kind=kind, at_s=self._now(), asked_s=asked_s, since_s=since_s, word=word))


class Crowd:
    """All of them."""

    def __init__(self, people: Sequence[Person], now: Callable[[], float]) -> None:
        self.people: Sequence[Person] = people
        self.now = now

    def seen(self, from_s: float, until_s: float, *kinds: Kind) -> list[Seen]:
        """By anybody, in that time."""
        return [seen for person in self.people for seen in person.seen if from_s <= seen.at_s <= until_s and seen.kind in kinds]

    def answered_s(self, from_s: float, until_s: float) -> list[float]:
        """From each written question of that time to the first words of its answer, the shortest first."""
        first: dict[tuple[int, float], float] = {}
        for seen in self.seen(from_s, until_s, "answered"):
            if seen.asked_s >= from_s and self.people[seen.who].role != "speaker":
                first.setdefault((seen.who, seen.asked_s), seen.at_s - seen.asked_s)
        return sorted(first.values())

    async def somebody_waits(self, concerned: Sequence[Person], within_s: float) -> None:
        """Return when one of these does: what breaks then breaks something of theirs."""
        ends_at = self.now() + within_s
        while self.now() < ends_at and not any(person.waits() for person in concerned):
            await asyncio.sleep(0.01)

    async def all_have(self, people: Sequence[Person], kind: Kind, asked_after_s: float, within_s: float) -> float | None:
        """When each of these has seen this of a turn asked for after that moment; None when they did not in time."""
        ends_at = self.now() + within_s
        while self.now() < ends_at:
            firsts = [next((s.at_s for s in p.seen if s.kind == kind and s.asked_s >= asked_after_s), None) for p in people]
            if None not in firsts:
                return max((at_s for at_s in firsts if at_s is not None), default=self.now())
            await asyncio.sleep(0.05)
        return None


def typists(url: str, n_people: int, *, cut_url: str = "", n_cut: int = 0, pause: Pause = SHORT) -> list[Person]:
    """So many people for `url`: three fifths talkers, a fifth each of the others. The first `n_cut` come by `cut_url`."""
    now = asyncio.get_running_loop().time
    roles: tuple[Role, ...] = ("talker", "sayer", "talker", "reader", "talker")
    return [Person(n, roles[n % len(roles)], cut_url if n < n_cut else url, now, pause) for n in range(n_people)]


@asynccontextmanager
async def crowd(people: Sequence[Person], within_s: float = 90) -> AsyncIterator[Crowd]:
    """They talk; each has had an answer, or `within_s` are over."""
    async with asyncio.TaskGroup() as tasks:
        talking = [tasks.create_task(person.talk(), name=f"person {person.number}") for person in people]
        made = Crowd(people, asyncio.get_running_loop().time)
        try:
            await made.all_have(people, "ended", 0, within_s)
            yield made
        finally:
            for task in talking:
                task.cancel()
