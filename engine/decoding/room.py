"""The decoders' process, seen from the event loop.

Packets are answered in the order in which they were sent, one at a time, so that when the process dies the oldest open packet is the one
that it died of. Every other waits for the next process (a third of a second) and goes on with a new decoder; a stream of which it died
twice is over.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from engine.api import EngineError, EngineNotReady, EngineStalled, Health
from engine.audio_codecs import CorruptAudio
from engine.worker import Worker, WorkerSpec

RATE_HZ = 16_000
LONGEST_PACKET_BYTES = 1500  # an opus packet of 120 ms has at most 1275 for each of its frames, and fits a datagram
CAPACITY = 1024  # packets at once: 20 ms of speech of as many people
STALL_S = 2.0  # a packet takes microseconds
BACK_S = 5.0  # for which a stream waits for another process
TICK_S = 0.02
DEATHS = 2  # of the process, on packets of one stream: that stream is over. One alone may be a process that somebody else killed


class StreamDied(EngineError):
    """The decoder died of this stream; no more of it is decoded."""

    kind = "crashed"
    retryable = False


class DecodingRoom:
    """Start it before the first stream, in the task that closes it. Raises `EngineSetupError` where the library is missing."""

    def __init__(self, factory: str = "engine.decoding.stage:DecodingStage") -> None:
        spec = WorkerSpec(name="decoders", factory=factory, capacity=CAPACITY, stall_s=STALL_S, backoff_s=0.02, backoff_max_s=0.5)
        self.worker = Worker(spec)
        self._n_streams = self._n_packets = 0
        self._open: dict[int, int] = {}  # packet -> the process that it was sent to, in the order of sending
        self._blamed = 0  # the newest process that died of a packet
        self._over: list[int] = []  # streams that the process may forget

    async def start(self) -> None:
        """Returns when packets are taken."""
        await self.worker.start()

    async def close(self) -> None:
        """Open packets end with `EngineNotReady`."""
        await self.worker.close()

    def health(self) -> Health:
        """Of the process."""
        return self.worker.health()

    def stream(self) -> RemoteDecoder:
        """A decoder for one client's opus."""
        self._n_streams += 1
        return RemoteDecoder(self, self._n_streams)

    async def decode(self, stream: int, data: bytes) -> bytes:
        """PCM of one packet; asks again where the process died of another one. Raises `CorruptAudio`, `StreamDied`, `EngineNotReady`."""
        try:
            async with asyncio.timeout(BACK_S):
                while True:
                    answers = await self._ask(stream, data)
                    if answers:
                        break
                    while not self.worker.health().ready:
                        await asyncio.sleep(TICK_S)
        except TimeoutError as error:
            raise EngineNotReady("the decoders' process did not come back") from error
        if answers[0] is None:
            raise CorruptAudio(f"expected an Opus packet, got {len(data)} other bytes")
        return answers[0]

    def forget(self, stream: int) -> None:
        """The stream is over; the process hears of it with the next packet of another one."""
        self._over.append(stream)

    async def _ask(self, stream: int, data: bytes) -> list[bytes | None]:
        """The answer, in a list; an empty one where the process was lost to another stream."""
        self._n_packets += 1
        number, process = self._n_packets, self.worker.pid or 0
        body = (stream, RATE_HZ, data, tuple(self._over))
        self._over.clear()
        self._open[number] = process
        try:
            async with aclosing(self.worker.stream(f"packet {number}", body)) as answers:
                return [pcm async for pcm in answers]
        except EngineStalled as error:  # it is the one at work that makes no progress; the process is killed for it
            self._blamed = process
            raise StreamDied("the decoder hung on this stream") from error
        except EngineNotReady as error:
            if process and process != self._blamed and next(iter(self._open)) == number:
                self._blamed = process
                raise StreamDied("the decoder died on this stream") from error
            return []
        finally:
            del self._open[number]


class RemoteDecoder:
    """One stream. Packets are decoded in the order of the calls; each call waits for its own."""

    def __init__(self, room: DecodingRoom, stream: int) -> None:
        self._room, self._stream = room, stream
        self._n_deaths = 0
        self._is_known = False  # to the process

    async def decode(self, packet: bytes) -> bytes:
        """PCM, mono s16le at 16 kHz.

        Raises `CorruptAudio`, also for the first packet of which the decoder died; `StreamDied` from the second one on; `EngineNotReady`
        when no process comes back, `EngineBusy` when too many packets wait.
        """
        if self._n_deaths >= DEATHS:
            raise StreamDied("the decoder died twice on this stream")
        if len(packet) > LONGEST_PACKET_BYTES:
            raise CorruptAudio(f"expected an Opus packet of at most {LONGEST_PACKET_BYTES} bytes, got {len(packet)}")
        self._is_known = True
        try:
            return await self._room.decode(self._stream, packet)
        except StreamDied as error:
            self._n_deaths += 1
            if self._n_deaths < DEATHS:
                raise CorruptAudio("the decoder died on this packet") from error
            raise

    def close(self) -> None:
        """The stream is over."""
        if self._is_known:
            self._room.forget(self._stream)
