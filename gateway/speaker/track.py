"""One segment on its way to the listener: its audio as it is made, who spoke it, and where it stands in the turn's audio."""

from __future__ import annotations

import asyncio
from collections import deque

from msgspec import Struct, structs

from engine.api import SpeechChunk, WordTiming
from gateway.events import SegmentStatus
from gateway.speaker.bell import Bell
from gateway.speech.stream import SpokenSegment
from gateway.voice_choice import Choice


class SegmentRecord(Struct, frozen=True, kw_only=True):
    """The way of one segment. A moment that never came is None."""

    index: int
    n_characters: int
    voice: str
    status: SegmentStatus
    audio_ms: float
    decided_s: float
    asked_s: float | None
    sounded_s: float | None
    made_s: float | None
    sent_s: float | None


class Track:
    """Filled by the voice, emptied by the framer, one at a time each. `voice`: who spoke what was taken last."""

    def __init__(self, segment: SpokenSegment, choice: Choice, decided_s: float = 0.0) -> None:
        self.segment = segment
        self.choice = choice
        self.voice = choice.voice
        self.status: SegmentStatus = "ok"
        self.words: list[WordTiming] = []
        self.start_ms: float | None = None
        self.sent_ms = 0.0
        self.is_made = False
        self.is_sent = False
        self.decided_s = decided_s
        self.asked_s: float | None = None
        self.sounded_s: float | None = None
        self.made_s: float | None = None
        self.sent_s: float | None = None
        self.at_ms = 0.0
        self.made_bytes = 0
        self._chunks: deque[SpeechChunk] = deque()
        self._n_bytes = 0
        self._grown = Bell()

    def record(self) -> SegmentRecord:
        """Its way, as far as it came."""
        return SegmentRecord(
            index=self.segment.index,
            n_characters=len(self.segment.text),
            voice=self.voice,
            status=self.status,
            audio_ms=round(self.sent_ms, 1),
            decided_s=self.decided_s,
            asked_s=self.asked_s,
            sounded_s=self.sounded_s,
            made_s=self.made_s,
            sent_s=self.sent_s,
        )

    def add(self, chunk: SpeechChunk, at_ms: float) -> None:
        """Take audio from the voice."""
        self._chunks.append(chunk)
        self._n_bytes += len(chunk.pcm)
        self.made_bytes += len(chunk.pcm)
        self.words.extend(chunk.words)
        self.at_ms = at_ms
        self._grown.ring()

    def close(self, status: SegmentStatus) -> None:
        """No more audio comes."""
        self.status = status
        self.is_made = True
        self._grown.ring()

    @property
    def left_bytes(self) -> int:
        """PCM that was made and not taken yet."""
        return self._n_bytes

    def let_go(self) -> None:
        """Nobody takes the rest any more; what is known of the segment stays."""
        self._chunks.clear()
        self._n_bytes = 0

    async def made(self, n_bytes: float) -> None:
        """Wait until so much PCM of the segment has been made, or all of it."""
        while self.made_bytes < n_bytes and not self.is_made:
            await self._grown.wait(None)

    async def take(self, n_bytes: int, least_bytes: int, patience_s: float) -> bytes:
        """The next `n_bytes` of PCM, fewer at the end of the segment, empty after it; waits for the voice.

        After `patience_s` less is good enough, but not less than `least_bytes`.
        """
        time = asyncio.get_running_loop().time
        deadline = time() + patience_s
        while self._n_bytes < n_bytes and not self.is_made:
            left_s = deadline - time() if self._n_bytes >= least_bytes else None
            if left_s is not None and left_s <= 0:
                break
            await self._grown.wait(left_s)
        parts: list[bytes] = []
        wanted = min(n_bytes, self._n_bytes)
        while wanted > 0:
            chunk = self._chunks.popleft()
            pcm = chunk.pcm
            if len(pcm) > wanted:
                self._chunks.appendleft(structs.replace(chunk, pcm=pcm[wanted:]))
                pcm = pcm[:wanted]
            if pcm and not parts:
                self.voice = chunk.voice or self.choice.voice
            parts.append(pcm)
            wanted -= len(pcm)
            self._n_bytes -= len(pcm)
        return b"".join(parts)

    async def take_chunk(self) -> SpeechChunk | None:
        """What the voice gave next, as it gave it; None at the end of the segment."""
        while not self._chunks:
            if self.is_made:
                return None
            await self._grown.wait(None)
        chunk = self._chunks.popleft()
        self._n_bytes -= len(chunk.pcm)
        if chunk.pcm or chunk.mp3:
            self.voice = chunk.voice or self.choice.voice
        return chunk
