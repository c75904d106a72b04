"""What Piper and espeak-ng have in common: a voice table, a worker, and the promise of `engine.api.Synthesizer`.

Decides before the worker is asked whether a text can be spoken, and takes out of it what the voice cannot read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import structs

from engine.api import EngineError, Health, SpeechChunk, Synthesis, Voice, VoiceUnavailable
from engine.tts.script import can_read, readable, scripts_of
from engine.worker import Worker, WorkerSpec

# Seconds for which a voice's process may leave heartbeats unanswered. Two heartbeats later it is ended, and another voice says the rest:
# before the listener's own deadline (turn.first_chunk_s, 10), after which the segment would stay without sound.
SILENCE_S = 5.0
_LONGEST_CHARACTERS = 2000  # a segment has a few hundred; more is a caller's fault, and would hold the voice for minutes


class LocalVoices:
    """Voices that speak in a worker process of this machine."""

    def __init__(self, name: str, voices: Sequence[Voice], worker: WorkerSpec) -> None:
        self._name = name
        self._voices = {voice.id: voice for voice in voices}
        self._scripts = {voice.id: scripts_of(voice.languages[0]) for voice in voices}
        self._worker = Worker(structs.replace(worker, silence_s=SILENCE_S))

    @property
    def name(self) -> str:
        return self._name

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self._worker.pid

    async def start(self) -> None:
        await self._worker.start()

    async def close(self) -> None:
        await self._worker.close()

    def health(self) -> Health:
        return self._worker.health()

    def voices(self) -> tuple[Voice, ...]:
        return tuple(self._voices.values())

    def can_speak(self, text: str, voice: str) -> bool:
        return voice in self._scripts and can_read(text, self._scripts[voice])

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """A chunk per clause, as it is made. Pitch and feeling are not for these voices; an encoding other than PCM neither."""
        body = self._request(synthesis)
        async with aclosing(self._worker.stream(synthesis.request_id, body)) as stream:
            async for pcm in stream:
                if pcm:
                    yield SpeechChunk(pcm=pcm, voice=synthesis.voice)

    def _request(self, synthesis: Synthesis) -> dict[str, Any]:  # Any: msgpack values
        if synthesis.voice not in self._voices:
            raise VoiceUnavailable(f"got the voice {synthesis.voice!r}, {self._name} has {', '.join(self._voices)}")
        if not self.can_speak(synthesis.text, synthesis.voice):
            raise VoiceUnavailable(f"{synthesis.voice} cannot read the script of a text of {len(synthesis.text)} characters")
        if len(synthesis.text) > _LONGEST_CHARACTERS:
            raise EngineError(f"got a segment of {len(synthesis.text)} characters, expected at most {_LONGEST_CHARACTERS}")
        return {
            "text": readable(synthesis.text, self._scripts[synthesis.voice]),
            "voice": synthesis.voice,
            "sample_rate_hz": synthesis.sample_rate_hz,
            "rate": synthesis.style.rate,
            "volume": synthesis.style.volume,
        }
