"""A spoken conversation: what is heard and answered, as it comes, until all is answered or the speaker leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.client import Conversation, ConversationError, Reply
from gateway.events import PlayoutPaused, PlayoutResumed, SpeechEnded, SpeechStarted, Transcribed, TurnDone
from gateway.talk.sound import Sink
from gateway.talk.transcript import Transcript

NOTICED_S = 3.0  # speech that the gateway has not noticed so long after its end, it will not
UNDERSTOOD_S = 20.0  # a final text that has not come by then will not
SHORTEST_MS = 300  # what is shorter was a noise, and no text follows


class Source(Protocol):
    """A microphone."""

    @property
    def is_pushed(self) -> bool:
        """Whether it says itself when an utterance is over."""

    def moment_s(self, at_ms: float) -> float:
        """The loop's time at which the sound at `at_ms` was said."""

    async def speak(self, conversation: Conversation) -> None:
        """Send what is said, until all is said (a recording) or cancelled (a person)."""

    async def stay_silent(self, conversation: Conversation) -> None:
        """Send the quiet behind it, until cancelled."""


class Dialogue:
    """Shows what is heard and each reply; knows whether all is answered."""

    def __init__(self, conversation: Conversation, source: Source, write: Callable[[str], None], player: Sink | None) -> None:
        self._conversation, self._source, self._write, self._player = conversation, source, write, player
        self._clock = asyncio.get_running_loop().time
        self._started_ms: dict[int, int] = {}  # utterances that are being said
        self._awaited: set[int] = set()  # over, and their text is still to come
        self._promised: set[int] = set()  # turns that will answer an understood utterance and have not begun
        self._ended_s: float | None = None
        self._n_speaking = 0  # replies under way
        self._n_noticed = 0
        self._changed = asyncio.Event()
        self._fault: Exception | None = None
        self._is_spoken = False
        self.last: TurnDone | None = None
        self.has_failed = False
        self.texts: list[str] = []

    async def run(self) -> str | None:
        """Speak until all is answered; None, or why nothing was. Raises `ConversationError`, and what the source raises."""
        failure: Exception | None = None
        why: str | None = None
        async with asyncio.TaskGroup() as tasks:
            own = [tasks.create_task(self._follow(tasks), name="hearing"), tasks.create_task(self._speak(), name="speaking")]
            try:
                why = await self._until_answered()
            except Exception as error:  # kept out of the group, so that the caller sees it unwrapped
                failure = error
            for task in own:
                task.cancel()
        if failure is not None:
            raise failure
        return why

    async def _speak(self) -> None:
        try:
            await self._source.speak(self._conversation)
        except Exception as error:  # raised where it is waited for
            self._fault = error
        self._is_spoken = True
        self._changed.set()
        await self._source.stay_silent(self._conversation)

    async def _until_answered(self) -> str | None:
        await self._comes(lambda: self._is_spoken, None)
        if not await self._comes(lambda: self._n_noticed > 0 or bool(self.texts), NOTICED_S):
            return "no speech was heard"
        if not await self._comes(lambda: not self._started_ms and not self._awaited, UNDERSTOOD_S):
            return f"no text of what was said came within {UNDERSTOOD_S:.0f} s"
        if not any(self.texts):
            return "nothing was understood"
        await self._comes(lambda: not self._promised, UNDERSTOOD_S)
        await self._comes(lambda: self.last is not None and not self._n_speaking, None)
        return None

    async def _comes(self, fact: Callable[[], bool], timeout_s: float | None) -> bool:
        """Whether it comes true in time. Raises what ended the conversation."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._fault is not None or not fact():
                    if self._fault is not None:
                        raise self._fault
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        try:
            async for heard in self._conversation.hearing:
                if isinstance(heard, Reply):
                    self._n_speaking += 1
                    self._promised.discard(heard.turn)
                    tasks.create_task(self._show(heard), name=f"reply {heard.turn}")
                else:
                    self._take(heard)
                self._changed.set()
        except ConversationError as error:
            self._fault = error
            self._changed.set()

    def _take(self, event: SpeechStarted | SpeechEnded | Transcribed | PlayoutPaused | PlayoutResumed) -> None:
        match event:
            case SpeechStarted():
                self._started_ms[event.utterance] = event.at_ms
            case SpeechEnded():
                started_ms = self._started_ms.pop(event.utterance, event.at_ms)
                if event.at_ms - started_ms >= SHORTEST_MS:
                    self._n_noticed += 1
                    self._awaited.add(event.utterance)
                    self._ended_s = self._source.moment_s(event.at_ms)
            case Transcribed(final=True):
                self._awaited.discard(event.utterance)
                self.texts.append(event.text)
                if event.text:
                    self._write(f"you: {event.text}")
                    if event.turn is not None:
                        self._promised.add(event.turn)
            case PlayoutPaused():
                self._write("(paused: somebody speaks)")
            case PlayoutResumed():
                self._write("(going on)")

    async def _show(self, reply: Reply) -> None:
        """One reply, timed from the end of the speech that it answers."""
        shown = Transcript(self._write)
        behind_ms = 0.0 if self._ended_s is None else (reply.asked_s - self._ended_s) * 1000
        try:
            async for at_ms, event in reply.timed():
                shown.add(at_ms + behind_ms, event)
                if isinstance(event, TurnDone):
                    self.last, self.has_failed = event, shown.has_failed
                    shown.end(None if self._player is None else self._player.description)
        except ConversationError as error:
            self._fault = error
        finally:
            self._n_speaking -= 1
            self._changed.set()
