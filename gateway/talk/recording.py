"""A WAV file as a microphone: read into mono PCM, then sent in frames, in real time or at once."""

from __future__ import annotations

import asyncio
import wave
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from engine.audio import Resampler, bytes_to_ms, ms_to_bytes, slice_frames
from gateway.client import Conversation

FRAME_MS = 20.0
FAST_FRAME_MS = 200.0  # well inside one message at 48 kHz
LOWEST_HZ, HIGHEST_HZ = 8_000, 48_000  # what the gateway takes; other rates are converted here
USUAL_HZ = 16_000
_SCALES = {1: 128.0, 2: 32_768.0, 3: 8_388_608.0, 4: 2_147_483_648.0}  # by bytes of a sample


class WrongSound(Exception):
    """The file is no sound that can be sent; the message says why."""


class Recording(Struct, frozen=True):
    """Mono s16le."""

    pcm: bytes
    rate_hz: int

    @property
    def length_ms(self) -> float:
        return bytes_to_ms(len(self.pcm), self.rate_hz)


def read_wav(path: Path) -> Recording:
    """The file's sound, its channels mixed. PCM of 8, 16, 24 or 32 bits at any rate. Raises `WrongSound`."""
    try:
        with wave.open(str(path)) as file:
            width, n_channels, rate_hz = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise WrongSound(f"{path} is not a WAV file of PCM ({error or 'it ends too soon'})") from error
    except OSError as error:
        raise WrongSound(f"cannot read {path}: {error.strerror or error}") from error
    if width not in _SCALES or n_channels < 1 or rate_hz < 1:
        raise WrongSound(f"{path} has {8 * width}-bit samples, {n_channels} channels, {rate_hz} Hz; expected 8 to 32 bits")
    data = data[: len(data) // (width * n_channels) * (width * n_channels)]  # a file that was cut off
    samples = _to_float(data, width).reshape(-1, n_channels).mean(axis=1)
    if not samples.size:
        raise WrongSound(f"{path} holds no sound")
    pcm = np.clip(np.round(samples * 32_768), -32_768, 32_767).astype("<i2").tobytes()
    if LOWEST_HZ <= rate_hz <= HIGHEST_HZ:
        return Recording(pcm, rate_hz)
    resampler = Resampler(rate_hz, USUAL_HZ)
    return Recording(resampler.feed(pcm) + resampler.flush(), USUAL_HZ)


def _to_float(data: bytes, width: int) -> NDArray[np.float64]:
    if width == 1:  # the only unsigned one
        return (np.frombuffer(data, np.uint8).astype(np.float64) - 128) / _SCALES[1]
    if width == 3:
        padded = np.zeros((len(data) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)  # as the upper three bytes of four
        return padded.view("<i4").ravel() / _SCALES[4]
    return np.frombuffer(data, f"<i{width}").astype(np.float64) / _SCALES[width]


class RecordedMicrophone:
    """Hears a recording once, then silence. `fast`: all at once, as one utterance that is committed (push-to-talk)."""

    def __init__(self, recording: Recording, *, fast: bool) -> None:
        self._recording, self._fast = recording, fast
        self._began_s = self._sent_s = 0.0

    @property
    def rate_hz(self) -> int:
        return self._recording.rate_hz

    @property
    def length_s(self) -> float:
        return self._recording.length_ms / 1000

    @property
    def is_pushed(self) -> bool:
        """Whether we say when an utterance is over."""
        return self._fast

    def moment_s(self, at_ms: float) -> float:
        """The loop's time at which the sound at `at_ms` was said."""
        return self._sent_s if self._fast else self._began_s + at_ms / 1000

    async def speak(self, conversation: Conversation) -> None:
        """Send it; returns when all is said. Raises as `Conversation.commit`."""
        clock = asyncio.get_running_loop().time
        self._began_s = clock()
        size = ms_to_bytes(FAST_FRAME_MS if self._fast else FRAME_MS, self.rate_hz)
        pts_ms = 0.0
        for frame in slice_frames(self._recording.pcm, size, size):
            end_ms = pts_ms + bytes_to_ms(len(frame), self.rate_hz)
            if not self._fast:
                await asyncio.sleep(self._began_s + end_ms / 1000 - clock())  # a microphone has a frame when it is over
            await conversation.append_audio(frame, pts_ms)
            pts_ms = end_ms
        self._sent_s = clock()
        if self._fast:
            await conversation.commit()

    async def stay_silent(self, conversation: Conversation) -> None:
        """As a microphone in a quiet room, until cancelled."""
        if self._fast:
            return
        clock = asyncio.get_running_loop().time
        frame = bytes(ms_to_bytes(FRAME_MS, self.rate_hz))
        pts_ms = self._recording.length_ms
        while True:
            await asyncio.sleep(self._began_s + (pts_ms + FRAME_MS) / 1000 - clock())
            await conversation.append_audio(frame, pts_ms)
            pts_ms += FRAME_MS
