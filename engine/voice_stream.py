"""One stream of audio on its way through a voice detector: what stands unscored, the clock, the scores for its consumer.

Audio is cut into frames of 32 ms on the stream's own clock. Both sides are bounded and drop the oldest: audio when the engine falls
behind, scores when nobody reads them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence

from engine.api import VoiceFrame
from engine.audio import SAMPLE_BYTES

RATE_HZ = 16_000
FRAME_MS = 32  # source: Silero VAD, 512 samples at 16 kHz and nothing else
FRAME_BYTES = RATE_HZ * FRAME_MS // 1000 * SAMPLE_BYTES
MAX_WAITING_BYTES = 2 * RATE_HZ * SAMPLE_BYTES // FRAME_BYTES * FRAME_BYTES  # 2 s: an engine that is later than that hears the past
_MAX_UNREAD = 1024  # 32 s of scores


class VoiceStream:
    """Audio in, batches out to the engine, scores back in order. Changed on the event loop only."""

    def __init__(self, number: int, pts_ms: int = 0) -> None:
        self.number = number
        self.is_fresh = True  # the model has no memory of it yet, or must not have
        self.is_over = False
        self.dropped_ms = 0
        self._pts_ms = pts_ms  # of the oldest sample that waits
        self._waiting = bytearray()
        self._scores: deque[VoiceFrame] = deque(maxlen=_MAX_UNREAD)
        self._reader: asyncio.Future[None] | None = None

    @property
    def has_frames(self) -> bool:
        """Whether a whole frame waits."""
        return len(self._waiting) >= FRAME_BYTES

    def feed(self, pcm: bytes) -> None:
        self._waiting += pcm
        self._drop(len(self._waiting) - MAX_WAITING_BYTES)

    def take(self, max_frames: int) -> tuple[int, bytes]:
        """Whole frames for the engine, and the time at which they begin."""
        n_bytes = min(len(self._waiting) // FRAME_BYTES, max_frames) * FRAME_BYTES
        pts_ms, pcm = self._pts_ms, bytes(self._waiting[:n_bytes])
        del self._waiting[:n_bytes]
        self._pts_ms += n_bytes // FRAME_BYTES * FRAME_MS
        return pts_ms, pcm

    def give_back(self, pcm: bytes) -> None:
        """The engine died over these frames: they are scored again, without its memory."""
        self._waiting[:0] = pcm
        self._pts_ms -= len(pcm) // FRAME_BYTES * FRAME_MS
        self.is_fresh = True
        self._drop(len(self._waiting) - MAX_WAITING_BYTES)

    def deliver(self, pts_ms: int, probabilities: Sequence[float]) -> None:
        """Scores of frames that were taken at `pts_ms`."""
        for index, probability in enumerate(probabilities):
            self._scores.append(VoiceFrame(pts_ms=pts_ms + index * FRAME_MS, probability=probability))
        self._wake()

    def end(self) -> None:
        """Nothing follows; scores that were not read are gone."""
        self.is_over = True
        self._scores.clear()
        self._wake()

    async def read(self) -> AsyncGenerator[VoiceFrame, None]:
        """Scores as they come, until `end`. One reader at a time."""
        while True:
            while self._scores:
                yield self._scores.popleft()
            if self.is_over:
                return
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader

    def restart(self, number: int, pts_ms: int) -> None:
        """Forget everything but the reader."""
        self.number, self._pts_ms, self.is_fresh = number, pts_ms, True
        self._waiting.clear()
        self._scores.clear()

    def _drop(self, n_bytes: int) -> None:
        n_frames = -(-n_bytes // FRAME_BYTES)
        if n_frames > 0:
            del self._waiting[: n_frames * FRAME_BYTES]
            self._pts_ms += n_frames * FRAME_MS
            self.dropped_ms += n_frames * FRAME_MS
            self.is_fresh = True

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
