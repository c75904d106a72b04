"""A voice with a pace of its own: so slow, with so much jitter before its first sound, one text at a time or several."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from engine.api import Health, SpeechChunk, Synthesis, Voice
from engine.fake import hum, speech_ms

FIRST_MS, CHUNK_MS = 60, 100


class SlowVoice:
    """Time is the loop's. `jitter_ms`: added to 60 ms before the first sound, evenly spread. `most`: texts at once, None for any number."""

    def __init__(self, rtf: float, jitter_ms: float = 0.0, most: int | None = None, seed: int = 1) -> None:
        self.rtf, self.jitter_ms = rtf, jitter_ms
        self.requests: list[Synthesis] = []
        self.n_open = self.most_open = 0
        self._line = None if most is None else asyncio.Semaphore(most)
        self._random = random.Random(seed)

    @property
    def name(self) -> str:
        return "slow"

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    def health(self) -> Health:
        return Health(ready=True, detail="slow")

    def voices(self) -> tuple[Voice, ...]:
        return (Voice(id="slow/0", languages=("en",), engine="slow"),)

    def can_speak(self, text: str, voice: str) -> bool:
        return True

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        self.requests.append(synthesis)
        self.n_open += 1
        self.most_open = max(self.most_open, self.n_open)
        try:
            async with AsyncExitStack() as place:
                if self._line is not None:
                    await place.enter_async_context(self._line)
                async for chunk in self._speak(synthesis):
                    yield chunk
        finally:
            self.n_open -= 1

    async def _speak(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        loop = asyncio.get_running_loop()
        first_at = loop.time() + (FIRST_MS + self._random.uniform(0, self.jitter_ms)) / 1000
        length_ms = speech_ms(synthesis.text)
        for at in range(0, length_ms, CHUNK_MS):
            await asyncio.sleep(first_at + at * self.rtf / 1000 - loop.time())
            pcm = hum("slow/0", synthesis.sample_rate_hz, at, min(CHUNK_MS, length_ms - at))
            yield SpeechChunk(pcm=pcm, voice="slow/0")
