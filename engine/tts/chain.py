"""Several voice engines behind one promise: the asked voice speaks where it can, the next one that can read the text steps in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import structs

from engine.api import EngineError, Health, SpeechChunk, Synthesis, Synthesizer, Voice, VoiceUnavailable


class VoiceChain:
    """Engines in order of preference. A segment changes its voice only before its first audio."""

    def __init__(self, engines: Sequence[Synthesizer]) -> None:
        self._engines = tuple(engines)

    @property
    def name(self) -> str:
        return self._engines[0].name

    async def start(self) -> None:
        await asyncio.gather(*(engine.start() for engine in self._engines))

    async def close(self) -> None:
        await asyncio.gather(*(engine.close() for engine in self._engines))

    def health(self) -> Health:
        healths = [(engine.name, engine.health()) for engine in self._engines]
        return Health(ready=any(health.ready for _, health in healths), detail="; ".join(f"{name}: {h.detail}" for name, h in healths))

    def voices(self) -> tuple[Voice, ...]:
        return tuple(voice for engine in self._engines for voice in engine.voices())

    def can_speak(self, text: str, voice: str) -> bool:
        return bool(self._candidates(text, voice))

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        candidates = self._candidates(synthesis.text, synthesis.voice)
        if not candidates:
            raise VoiceUnavailable(f"no voice can speak this text of {len(synthesis.text)} characters")
        for place, (engine, voice) in enumerate(candidates):
            spoken = False
            try:
                async with aclosing(engine.synthesize(structs.replace(synthesis, voice=voice))) as chunks:
                    async for chunk in chunks:
                        spoken = True
                        yield chunk if chunk.voice else structs.replace(chunk, voice=voice)
                return
            except EngineError:
                if spoken or place == len(candidates) - 1:
                    raise

    def _candidates(self, text: str, voice: str) -> list[tuple[Synthesizer, str]]:
        """Who may speak, best first: the asked voice, then one of its language from each further engine."""
        asked = next((known for known in self.voices() if known.id == voice), None)
        found: list[tuple[Synthesizer, str]] = []
        for engine in self._engines:
            ids = [known.id for known in engine.voices() if known.id == voice or asked is None or known.languages[0] == asked.languages[0]]
            chosen = next((each for each in sorted(ids, key=lambda each: each != voice) if engine.can_speak(text, each)), None)
            if chosen is not None:
                found.append((engine, chosen))
        return sorted(found, key=lambda pair: pair[1] != voice)
