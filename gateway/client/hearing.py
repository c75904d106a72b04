"""What is heard of the microphone, and the replies that it leads to, as one stream for one reader."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.client.faults import ConversationError
from gateway.client.reply import Reply
from gateway.events import PlayoutPaused, PlayoutResumed, SpeechEnded, SpeechStarted, Transcribed

KEPT = 1000  # a caller that does not read loses the oldest; an utterance has some ten events

Heard = SpeechStarted | SpeechEnded | Transcribed | PlayoutPaused | PlayoutResumed | Reply


class Hearing:
    """`async for heard in conversation.hearing`: events in order, and each reply that nobody asked for in writing once it begins.

    Never ends. Raises `ConversationLost` where the connection is gone.
    """

    def __init__(self) -> None:
        self._waiting: deque[Heard] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()
        self._fault: ConversationError | None = None

    def __aiter__(self) -> Hearing:
        return self

    async def __anext__(self) -> Heard:
        while not self._waiting:
            if self._fault is not None:
                raise self._fault
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()

    def add(self, heard: Heard) -> None:
        """For the conversation's reader."""
        self._waiting.append(heard)
        self._changed.set()

    def fail(self, fault: ConversationError) -> None:
        """For the conversation's reader: nothing more will come."""
        self._fault = fault
        self._changed.set()
