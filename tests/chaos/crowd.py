"""People who talk while things break: what each of them saw, and when.

Three kinds, so that a fault has somebody whom it must not touch: talkers (model and voice), sayers (a voice without the model) and readers
(the model without a voice). Whoever loses a conversation begins a new one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Literal

from msgspec import Struct

from gateway.client import Conversation, ConversationError, ConversationLost, Refused, Reply, connect
from gateway.events import ErrorRaised, SegmentDecided, StartSession, TurnDone

Role = Literal["talker", "sayer", "reader"]
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

    def __init__(self, number: int, role: Role, url: str, now: Callable[[], float], pause_s: float = 0.3) -> None:
        self.number, self.role, self.url = number, role, url
        self.seen: list[Seen] = []
        self.asked_s: float | None = None  # of the turn that is on its way
        self.n_resumes = 0
        self._now, self._pause_s = now, pause_s  # between turns, and before another attempt

    async def talk(self) -> None:
        """Until cancelled."""
        await asyncio.sleep(random.random() * self._pause_s)  # not all in step
        while True:
            with suppress(ConversationError):
                start = StartSession(output="text" if self.role == "reader" else "audio")
                async with connect(self.url, start=start, resume_s=10.0) as conversation:
                    await self._converse(conversation)
            self.asked_s = None
            await asyncio.sleep(self._pause_s)

    async def _converse(self, conversation: Conversation) -> None:
        while True:
            asked_s = self.asked_s = self._now()
            try:
                reply = await (conversation.say(PHRASE) if self.role == "sayer" else conversation.text("Tell me of the sea."))
                await self._listen(reply, asked_s)
            except Refused as error:
                self._note("told", asked_s, asked_s, error.code)
            except ConversationLost as error:
                self._note("lost", asked_s, asked_s, str(error.close_code))
                raise
            finally:
                self.n_resumes = max(self.n_resumes, conversation.n_resumes)
            self.asked_s = None
            await asyncio.sleep(self._pause_s)

    async def _listen(self, reply: Reply, asked_s: float) -> None:
        since_s = asked_s
        async for event in reply:
            match event:
                case SegmentDecided():
                    since_s = self._now()
                    self._note("answered", asked_s, since_s)
                case ErrorRaised(code=code):
                    self._note("told", asked_s, since_s, code)
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

    async def all_have(self, people: Sequence[Person], kind: Kind, asked_after_s: float, within_s: float) -> float | None:
        """When each of these has seen this of a turn asked for after that moment; None when they did not in time."""
        ends_at = self.now() + within_s
        while self.now() < ends_at:
            firsts = [next((s.at_s for s in p.seen if s.kind == kind and s.asked_s >= asked_after_s), None) for p in people]
            if None not in firsts:
                return max((at_s for at_s in firsts if at_s is not None), default=self.now())
            await asyncio.sleep(0.05)
        return None


@asynccontextmanager
async def crowd(url: str, n_people: int, *, cut_url: str = "", n_cut: int = 0, pause_s: float = 0.3) -> AsyncIterator[Crowd]:
    """So many people talking at `url`: three fifths talkers, a fifth each of the others. The first `n_cut` come by `cut_url`."""
    loop = asyncio.get_running_loop()
    roles: tuple[Role, ...] = ("talker", "sayer", "talker", "reader", "talker")
    people = [Person(n, roles[n % len(roles)], cut_url if n < n_cut else url, loop.time, pause_s) for n in range(n_people)]
    async with asyncio.TaskGroup() as tasks:
        talking = [tasks.create_task(person.talk(), name=f"person {person.number}") for person in people]
        made = Crowd(people, loop.time)
        try:
            await made.all_have(people, "ended", 0, within_s=90)
            yield made
        finally:
            for task in talking:
                task.cancel()


class Cutter:
    """A relay in front of the gateway that can cut every connection at a byte of its own choice."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left: dict[asyncio.Task[None], int | None] = {}
        self.n_cut = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its address."""
        async with asyncio.TaskGroup() as tasks:

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._left[tasks.create_task(self._relay(reader, writer), name="relay")] = None

            server = await asyncio.start_server(begin, "127.0.0.1", 0)
            async with server:
                yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/voice"
                for task in self._left:
                    task.cancel()

    def cut(self) -> None:
        """Each open connection ends within its next some thousand bytes, in the middle of whatever passes there."""
        for task in self._left:
            self._left[task] = random.randrange(1, 6000)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs"
        try:
            from_gateway, to_gateway = await asyncio.open_connection("127.0.0.1", self._port)
            async with asyncio.TaskGroup() as tasks:
                ways = [
                    tasks.create_task(self._pass(reader, to_gateway, task), name="up"),
                    tasks.create_task(self._pass(from_gateway, writer, task), name="down"),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
            to_gateway.transport.abort()
        except OSError:  # the gateway has ended
            pass
        finally:
            writer.transport.abort()
            del self._left[task]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                left = self._left[task]
                if left is not None:
                    data, self._left[task] = data[:left], left - len(data)
                writer.write(data)
                await writer.drain()
                if left is not None and left <= len(data):
                    self.n_cut += 1
                    return
