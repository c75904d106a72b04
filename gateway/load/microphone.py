"""A guest's microphone: silence that never stops, and speech in it, as a browser page sends it."""

from __future__ import annotations

import asyncio
import math
import wave
from array import array
from collections import deque
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

FRAME_MS = 20  # as the page's capture worklet
SYNTHETIC_HZ, SYNTHETIC_MS = 16_000, 1500
_PITCH_HZ = 220


class Speech(Struct, frozen=True):
    """What a spoken guest says each time: s16le, mono, in frames of `FRAME_MS`."""

    frames: tuple[bytes, ...]
    rate_hz: int

    @property
    def silence(self) -> bytes:
        """One frame of nothing."""
        return bytes(2 * self.rate_hz * FRAME_MS // 1000)


def synthetic() -> Speech:
    """A hum at a quarter of full scale: speech for scripted ears, which judge by loudness; a real recognizer hears no words in it."""
    step = 2 * math.pi * _PITCH_HZ / SYNTHETIC_HZ
    pcm = array("h", [round(8000 * math.sin(step * n)) for n in range(SYNTHETIC_HZ * SYNTHETIC_MS // 1000)]).tobytes()
    return Speech(_cut(pcm, SYNTHETIC_HZ), SYNTHETIC_HZ)


def from_wav(path: Path) -> Speech:
    """A recording. Raises `ValueError` where it is no 16-bit mono WAV."""
    try:
        with wave.open(str(path), "rb") as file:
            if file.getsampwidth() != 2 or file.getnchannels() != 1:
                got = f"{8 * file.getsampwidth()} bits, {file.getnchannels()} channel(s)"
                raise ValueError(f"{path}: got {got}; expected 16-bit mono PCM")
            rate_hz, pcm = file.getframerate(), file.readframes(file.getnframes())
    except (OSError, EOFError, wave.Error) as error:
        raise ValueError(f"{path}: not a WAV file that can be read ({error})") from error
    if not pcm:
        raise ValueError(f"{path}: got a recording without samples; expected speech")
    return Speech(_cut(pcm, rate_hz), rate_hz)


def _cut(pcm: bytes, rate_hz: int) -> tuple[bytes, ...]:
    size = 2 * rate_hz * FRAME_MS // 1000
    return tuple(pcm[at : at + size].ljust(size, b"\0") for at in range(0, len(pcm), size))


class Microphone:
    """Sends a frame every `FRAME_MS` while `run` runs; `speak` puts the speech into the stream. `send`: a frame and its media time."""

    def __init__(self, speech: Speech, send: Callable[[bytes, float], None]) -> None:
        self._speech, self._send = speech, send
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[bytes] = deque()
        self._said: asyncio.Future[float] | None = None

    async def run(self) -> None:
        """Until cancelled. A frame that is late is sent at once, and the next ones catch up, as a device's buffer would."""
        started_s, n_sent = self._loop.time(), 0
        while True:
            await asyncio.sleep(max(0.0, started_s + n_sent * FRAME_MS / 1000 - self._loop.time()))
            self._send(self._waiting.popleft() if self._waiting else self._speech.silence, n_sent * FRAME_MS)
            n_sent += 1
            if not self._waiting and self._said is not None and not self._said.done():
                self._said.set_result(self._loop.time())

    async def speak(self) -> float:
        """Say it once; the loop's time at which its last frame was sent."""
        self._waiting.extend(self._speech.frames)
        self._said = self._loop.create_future()
        return await self._said
