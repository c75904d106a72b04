"""This machine's microphone and loudspeaker, through the package sounddevice (the extra `mic`; PortAudio underneath).

Its callbacks run on a thread of their own: what they share with the loop is guarded, or handed over with `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from collections import deque
from contextlib import ExitStack
from typing import Any

from engine.audio import bytes_to_ms
from gateway.client import Conversation
from gateway.events import AudioFrame

RATE_HZ = 16_000
FRAME_MS = 20
WAITING = 50  # frames, a second: what the connection does not take by then is too old to be of use


class NoDevice(Exception):
    """There is no microphone or loudspeaker to be had; the message says what to do."""


def load() -> Any:  # Any: sounddevice has no types
    """The package sounddevice. Raises `NoDevice`."""
    try:
        return importlib.import_module("sounddevice")
    except ImportError as error:
        raise NoDevice(f"--mic needs the package sounddevice: {sys.executable} -m pip install 'stretto[mic]'") from error
    except OSError as error:
        raise NoDevice(f"--mic needs PortAudio ({error}); on Debian and Ubuntu: apt-get install libportaudio2") from error


class DeviceMicrophone:
    """The default microphone, hands-free."""

    rate_hz = RATE_HZ
    is_pushed = False

    def __init__(self, sounddevice: Any) -> None:  # Any: as above
        self._sounddevice = sounddevice
        self._began_s = 0.0

    def moment_s(self, at_ms: float) -> float:
        return self._began_s + at_ms / 1000

    async def speak(self, conversation: Conversation) -> None:
        """Send what is heard, until cancelled. Raises `NoDevice`."""
        loop = asyncio.get_running_loop()
        frames: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(WAITING)
        n_heard = 0

        def hand_over(frame: bytes, pts_ms: float) -> None:
            if frames.full():
                frames.get_nowait()  # the oldest; its time says what is missing
            frames.put_nowait((pts_ms, frame))

        def on_sound(data: Any, n_frames: int, _time: Any, _status: Any) -> None:  # Any: as above
            nonlocal n_heard
            loop.call_soon_threadsafe(hand_over, bytes(data), n_heard * 1000 / RATE_HZ)
            n_heard += n_frames

        options = {"samplerate": RATE_HZ, "channels": 1, "dtype": "int16", "blocksize": RATE_HZ * FRAME_MS // 1000}
        with ExitStack() as stack:
            self._began_s = loop.time()
            stack.enter_context(_opened(self._sounddevice, "RawInputStream", "microphone", callback=on_sound, **options))
            while True:
                pts_ms, frame = await frames.get()
                await conversation.append_audio(frame, pts_ms)

    async def stay_silent(self, conversation: Conversation) -> None:
        """Never comes to that: a person is not over."""


class DeviceSpeaker:
    """The default loudspeaker: stops and pauses within one of its buffers."""

    description = "played by this machine's loudspeaker"

    def __init__(self, sounddevice: Any, stack: ExitStack) -> None:  # Any: as above
        self._sounddevice, self._stack = sounddevice, stack
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._offset = 0  # bytes of the first one that were played
        self._played_bytes: dict[int, int] = {}
        self._stopped = 0  # frames of this turn and older ones are dropped
        self._is_paused = False
        self._is_empty = threading.Event()
        self._is_empty.set()
        self._rate_hz = 24_000
        self._stream: Any = None

    def open(self, rate_hz: int) -> None:
        """Raises `NoDevice`."""
        self._rate_hz = rate_hz
        stream = _opened(
            self._sounddevice, "RawOutputStream", "loudspeaker", samplerate=rate_hz, channels=1, dtype="int16", callback=self._fill
        )
        self._stream = self._stack.enter_context(stream)

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        with self._lock:
            if frame.turn > self._stopped:
                self._waiting.append((frame.turn, frame.data))
                self._is_empty.clear()

    def played_ms(self, turn: int) -> float:
        with self._lock:
            return bytes_to_ms(self._played_bytes.get(turn, 0), self._rate_hz)

    def pause(self, turn: int) -> None:
        self._is_paused = True

    def resume(self, turn: int) -> None:
        self._is_paused = False

    def stop(self, turn: int) -> None:
        with self._lock:
            self._stopped = max(self._stopped, turn)
            while self._waiting and self._waiting[0][0] <= turn:
                self._waiting.popleft()
                self._offset = 0
            self._is_paused = False
            if not self._waiting:
                self._is_empty.set()

    def close(self) -> None:
        """Wait until all of it is out; ten seconds at most."""
        self._is_empty.wait(10.0)

    def _fill(self, out: Any, n_frames: int, _time: Any, _status: Any) -> None:  # Any: as above
        """PortAudio wants `2 * n_frames` bytes, now."""
        wanted = 2 * n_frames
        with self._lock:
            parts = [] if self._is_paused else self._take(wanted)
        sound = b"".join(parts)
        out[:] = sound + bytes(wanted - len(sound))

    def _take(self, n_bytes: int) -> list[bytes]:
        parts = []
        while n_bytes and self._waiting:
            turn, data = self._waiting[0]
            part = data[self._offset : self._offset + n_bytes]
            parts.append(part)
            n_bytes -= len(part)
            self._offset += len(part)
            self._played_bytes[turn] = self._played_bytes.get(turn, 0) + len(part)
            if self._offset >= len(data):
                self._waiting.popleft()
                self._offset = 0
        if not self._waiting:
            self._is_empty.set()
        return parts


def _opened(sounddevice: Any, kind: str, name: str, **options: Any) -> Any:  # Any: as above
    try:
        return getattr(sounddevice, kind)(**options)
    except sounddevice.PortAudioError as error:
        raise NoDevice(f"the {name} cannot be opened: {error}") from error
