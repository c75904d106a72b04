"""A voice that hums."""

from __future__ import annotations

import asyncio
import math
import re
from array import array
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import cache

from engine.api import SpeechChunk, Synthesis, Voice, VoiceUnavailable, WordTiming
from engine.fake.script import N_RECORDS, Fault, OpenRequest, Scripted

_WIDE = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def speech_ms(text: str) -> int:
    """How long a fake voice speaks `text`: 60 ms a character, 200 ms a wide (East Asian) one, at least 200 ms in all."""
    n_wide = len(_WIDE.findall(text))
    return max(200, 60 * (len(text) - n_wide) + 200 * n_wide)


class ScriptedVoice(Scripted):
    """A `Synthesizer` that hums: a sine wave as long as `speech_ms` says, in chunks made at `rtf`.

    `reads_han=False`: refuses Chinese, as Piper's English voices do. `faults`: a fragment of the text -> what goes wrong.
    """

    def __init__(
        self,
        *,
        first_chunk_ms: float = 60.0,
        rtf: float = 0.1,
        chunk_ms: int = 100,
        reads_han: bool = True,
        word_timings: bool = False,
        faults: Mapping[str, Fault] | None = None,
    ) -> None:
        super().__init__()
        self.first_chunk_ms, self.rtf, self.chunk_ms = first_chunk_ms, rtf, chunk_ms
        self.reads_han, self.word_timings = reads_han, word_timings
        self.faults = dict(faults or {})
        self.requests: deque[Synthesis] = deque(maxlen=N_RECORDS)
        self.finished: deque[str] = deque(maxlen=N_RECORDS)

    @property
    def name(self) -> str:
        return "fake"

    def voices(self) -> tuple[Voice, ...]:
        voices = (Voice(id="fake-en", languages=("en",), engine="fake"), Voice(id="fake-low", languages=("en",), engine="fake"))
        return (*voices, Voice(id="fake-zh", languages=("zh", "en"), engine="fake")) if self.reads_han else voices

    def can_speak(self, text: str, voice: str) -> bool:
        return any(v.id == voice for v in self.voices()) and (self.reads_han or _HAN.search(text) is None)

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        self._check_ready()
        if not self.can_speak(synthesis.text, synthesis.voice):
            raise VoiceUnavailable(f"{synthesis.voice!r} cannot speak this text; voices: {[v.id for v in self.voices()]}")
        request = self._admit(synthesis.request_id)
        self.requests.append(synthesis)
        try:
            async with aclosing(self._stream(synthesis, request)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self.finished.append(synthesis.request_id)
        except (GeneratorExit, asyncio.CancelledError):
            self.abandoned.append(synthesis.request_id)
            raise
        finally:
            del self._open[synthesis.request_id]

    async def _stream(self, synthesis: Synthesis, request: OpenRequest) -> AsyncGenerator[SpeechChunk, None]:
        fault = next((fault for fragment, fault in self.faults.items() if fragment in synthesis.text), None)
        total_ms = round(speech_ms(synthesis.text) / synthesis.style.rate)
        words = _word_timings(synthesis.text, total_ms) if self.word_timings else ()
        for index, start_ms in enumerate(range(0, total_ms, self.chunk_ms)):
            await request.wait_until(request.started_s + (self.first_chunk_ms + start_ms * self.rtf) / 1000)
            await request.meet(fault, index)
            self._is_stopped(request)
            pcm = hum(synthesis.voice, synthesis.sample_rate_hz, start_ms, min(self.chunk_ms, total_ms - start_ms))
            yield SpeechChunk(pcm=pcm, words=words if index == 0 else ())


def hum(voice: str, sample_rate_hz: int, start_ms: int, length_ms: int) -> bytes:
    """Mono s16le of a voice's note from `start_ms` on; pieces that follow one another join without a click."""
    second = _one_second(220 if voice == "fake-low" else 440, sample_rate_hz)
    start = start_ms * sample_rate_hz // 1000
    end = (start_ms + length_ms) * sample_rate_hz // 1000
    offset = start % sample_rate_hz
    rest = 2 * (offset + end - start) - len(second)
    if rest <= 0:
        return second[2 * offset : 2 * (offset + end - start)]
    return second[2 * offset :] + (second * (rest // len(second) + 1))[:rest]


@cache
def _one_second(pitch_hz: int, sample_rate_hz: int) -> bytes:
    """A whole number of periods, so that the second repeats seamlessly; a quarter of full scale is easy on ears."""
    step = 2 * math.pi * pitch_hz / sample_rate_hz
    return array("h", [round(8000 * math.sin(step * n)) for n in range(sample_rate_hz)]).tobytes()


def _word_timings(text: str, total_ms: int) -> tuple[WordTiming, ...]:
    per_character = total_ms / max(1, len(text))
    return tuple(
        WordTiming(start_ms=round(m.start() * per_character), end_ms=round(m.end() * per_character), start=m.start(), end=m.end())
        for m in re.finditer(r"\S+", text)
    )
