"""What the tests of listening share: loud and quiet audio, a recognizer's server that can be held and released."""

from __future__ import annotations

import asyncio
import math
from array import array

from engine.api import Transcript, Transcription

LOUD = array("h", [round(8000 * math.sin(2 * math.pi * 220 * n / 16_000)) for n in range(16_000)]).tobytes()
QUIET = bytes(len(LOUD))


def wanted(utterance: str, session: str = "", *, is_final: bool = True, pcm: bytes = LOUD, language: str | None = None) -> Transcription:
    return Transcription(utterance=utterance, session=session or utterance, pcm=pcm, is_final=is_final, language=language)


class HeldServer:
    """Serves a transcription when it is told to; keeps the order in which they began."""

    def __init__(self) -> None:
        self.began: list[Transcription] = []
        self.cancelled: list[str] = []
        self._gates: list[asyncio.Event] = []

    async def serve(self, transcription: Transcription) -> Transcript:
        gate = asyncio.Event()
        self.began.append(transcription)
        self._gates.append(gate)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(transcription.utterance)
            raise
        return Transcript(text=f"{transcription.utterance}{'' if transcription.is_final else '...'}")

    def release(self, index: int = -1) -> None:
        self._gates[index].set()


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)
