"""A voice engine that speaks tones (see `spoken_tones`) and fails as told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from msgspec import Struct

from engine.api import EngineError, Health, SpeechChunk, SpeechCut, Synthesis, Voice, WordTiming
from engine.tts.script import can_read, scripts_of
from tests.doubles.spoken_tones import speak, timings


class Mishap(Struct, frozen=True, kw_only=True):
    """After `words` whole words `error` is raised; `tells_place`: with the place in the text."""

    error: EngineError
    words: int = 0
    tells_place: bool = True


class ToneVoice:
    """`mishaps` are used up by requests in order; None is a good one."""

    def __init__(self, name: str, languages: tuple[str, ...] = ("en",), *, n_voices: int = 1, has_times: bool = True) -> None:
        self._name, self._has_times = name, has_times
        self._voices = tuple(Voice(id=f"{name}/{i}", languages=languages, engine=name) for i in range(n_voices))
        self._scripts = scripts_of(languages[0])
        self.mishaps: deque[Mishap | None] = deque()
        self.requests: list[Synthesis] = []
        self.n_closed = 0
        self.expected: list[str] = []
        self.is_ready = False

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        self.is_ready = True

    async def close(self) -> None:
        self.is_ready = False

    def health(self) -> Health:
        return Health(ready=self.is_ready, detail="tones")

    def voices(self) -> tuple[Voice, ...]:
        return self._voices

    def can_speak(self, text: str, voice: str) -> bool:
        return any(known.id == voice for known in self._voices) and can_read(text, self._scripts)

    def expect(self, voice: str) -> None:
        self.expected.append(voice)

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        self.requests.append(synthesis)
        mishap = self.mishaps.popleft() if self.mishaps else None
        pcm, places = speak(synthesis.text, synthesis.sample_rate_hz), _placed(synthesis.text)
        bytes_per_ms = synthesis.sample_rate_hz * 2 // 1000
        out_ms = 0
        try:
            for i, word in enumerate(places):
                if mishap is not None and mishap.words == i:
                    await self._fail(mishap, places, i)
                yield SpeechChunk(pcm=pcm[out_ms * bytes_per_ms : word.end_ms * bytes_per_ms], words=(word,) if self._has_times else ())
                out_ms = word.end_ms
                await asyncio.sleep(0)
            yield SpeechChunk(pcm=pcm[out_ms * bytes_per_ms :])
        finally:
            self.n_closed += 1

    async def _fail(self, mishap: Mishap, places: list[WordTiming], i: int) -> None:
        await asyncio.sleep(0)
        if i == 0:
            raise mishap.error
        raise SpeechCut("broke off", spoken=places[i - 1].end if mishap.tells_place else None) from mishap.error


def _placed(text: str) -> list[WordTiming]:
    places, at = [], 0
    for word, start_ms, end_ms in timings(text):
        at = text.index(word, at)
        places.append(WordTiming(start_ms=start_ms, end_ms=end_ms, start=at, end=at + len(word)))
        at += len(word)
    return places
