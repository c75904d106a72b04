"""Encoders for a virtual clock: packets that say what they hold instead of compressing it, and MP3 frames with real headers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from msgspec import structs

from engine.api import SpeechChunk, Synthesis
from tests.doubles.tone_voice import ToneVoice

RATE_HZ = 24_000
FRAME_BYTES, FRAME_MS = 144, 24  # MPEG-2 Layer III, 48 kbit/s, 24 kHz, mono
_FRAME_HEADER = b"\xff\xf3\x64\xc0"


def mp3_frames(n: int, mark: bytes) -> bytes:
    """Whole frames without sound, filled with `mark`."""
    return (_FRAME_HEADER + mark * (FRAME_BYTES - len(_FRAME_HEADER))) * n


class ScriptedEncoding:
    """Remembers every encoder it gave out."""

    def __init__(self) -> None:
        self.given: list[ScriptedEncoder] = []

    def rates(self) -> Mapping[str, tuple[int, ...]]:
        return {"opus": (RATE_HZ,), "mp3": (RATE_HZ,)}

    def encoder(self, codec: str, sample_rate_hz: int) -> ScriptedEncoder:
        assert sample_rate_hz == RATE_HZ
        self.given.append(ScriptedEncoder(codec))
        return self.given[-1]


class ScriptedEncoder:
    """Opus: a packet for 20 ms, its number in it. MP3: a frame for 24 ms, one held back as LAME does."""

    def __init__(self, codec: str) -> None:
        self.codec = codec
        self.pcm = b""
        self.n_given = 0
        self.n_finished = 0
        self._unit_bytes = (20 if codec == "opus" else FRAME_MS) * RATE_HZ * 2 // 1000

    async def encode(self, pcm: bytes) -> list[bytes]:
        self.pcm += pcm
        whole = len(self.pcm) // self._unit_bytes - (1 if self.codec == "mp3" else 0)
        return self._give(whole)

    async def finish(self) -> list[bytes]:
        self.n_finished += 1
        self.pcm += bytes(-len(self.pcm) % self._unit_bytes)
        return self._give(len(self.pcm) // self._unit_bytes)

    def _give(self, until: int) -> list[bytes]:
        new = range(self.n_given, max(self.n_given, until))
        self.n_given = max(self.n_given, until)
        return [b"packet %d" % n if self.codec == "opus" else mp3_frames(1, b"e") for n in new]


class Mp3ToneVoice(ToneVoice):
    """Tones with the voice's own MP3 beside them: two frames with the first sound, then in step with it."""

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        n_bytes = n_frames = 0
        async with aclosing(super().synthesize(synthesis)) as chunks:
            async for chunk in chunks:
                n_bytes += len(chunk.pcm)
                due = 2 + n_bytes * 1000 // (RATE_HZ * 2 * FRAME_MS)
                mp3 = mp3_frames(due - n_frames, self.name[:1].encode()) if synthesis.encoding == "mp3" else b""
                n_frames = due
                yield structs.replace(chunk, mp3=mp3, voice=synthesis.voice)
