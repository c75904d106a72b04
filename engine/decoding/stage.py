"""The decoders inside their process: one for each stream, in the order in which packets came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import msgspec

from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.opus import OpusDecoder
from engine.worker.jobs import Job

MAX_STREAMS = 4096  # 18 KB each; the one that was quiet for longest begins anew


class Packet(msgspec.Struct, frozen=True, array_like=True):
    """One packet of a stream. `over`: streams of which no more comes."""

    stream: int
    rate_hz: int
    data: bytes
    over: tuple[int, ...] = ()


class DecodingStage:
    """Opus. Answers each packet with its PCM, or with None where it was no packet."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: nothing is set up
        self._decoders: OrderedDict[int, OpusDecoder] = OrderedDict()
        OpusDecoder(16_000)  # a missing library is told at the start

    def describe(self) -> Any:  # Any: msgpack values
        return {}

    def handle(self, job: Job) -> Iterable[Any]:  # Any: no messages but the one that is sent
        """In one step, so that of all open requests the oldest is the one at work."""
        packet = msgspec.convert(job.body, Packet)
        for stream in packet.over:
            self._decoders.pop(stream, None)
        decoder = self._decoders.pop(packet.stream, None) or OpusDecoder(packet.rate_hz)
        self._decoders[packet.stream] = decoder
        if len(self._decoders) > MAX_STREAMS:
            self._decoders.popitem(last=False)
        try:
            job.send(decoder.decode(packet.data))
        except CorruptAudio:
            job.send(None)
        return ()
