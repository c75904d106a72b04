"""Audio for clients that ask for opus or mp3, encoded off the loop.

One `ClientEncoder` per stream: for opus a whole turn, whose segments then join as smoothly as in the PCM; for MP3 a segment, because its
encoder cannot go on after the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Protocol

from engine.api import EngineSetupError
from engine.audio_codecs.opus import RATES_HZ as OPUS_RATES_HZ
from engine.audio_codecs.opus import OpusEncoder

Codec = Literal["opus", "mp3"]
MP3_RATES_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


class FrameEncoder(Protocol):
    """PCM (mono s16le) in pieces of any size to whole packets or frames."""

    def feed(self, pcm: bytes) -> list[bytes]:
        """What is complete now."""

    def flush(self) -> list[bytes]:
        """The rest, filled up with silence where the codec needs it."""


class Mp3Encoder:
    """MP3 frames, 48 kbit/s mono as the edge service's, so that both can follow each other in one stream.

    LAME holds up to two frames back. Raises `EngineSetupError` without `lameenc`.
    """

    def __init__(self, sample_rate_hz: int, bitrate_bps: int = 48_000) -> None:
        try:
            import lameenc  # LGPL-3.0, an extra
        except ImportError as error:
            raise EngineSetupError("no MP3 encoder: install stretto[codecs]") from error
        self._encoder = lameenc.Encoder()
        self._encoder.set_bit_rate(bitrate_bps // 1000)
        self._encoder.set_in_sample_rate(sample_rate_hz)
        self._encoder.set_channels(1)
        self._encoder.set_quality(7)  # fastest; at speech rates no worse to the ear
        self._encoder.silence()
        self._has_fed = False

    def feed(self, pcm: bytes) -> list[bytes]:
        self._has_fed = self._has_fed or bool(pcm)
        data = bytes(self._encoder.encode(pcm)) if pcm else b""
        return [data] if data else []

    def flush(self) -> list[bytes]:
        """The end of the stream: it cannot go on afterwards."""
        data = bytes(self._encoder.flush()) if self._has_fed else b""
        return [data] if data else []


def frame_encoder(codec: Codec, sample_rate_hz: int) -> FrameEncoder:
    """Raises `EngineSetupError` for a missing library, `ValueError` for a rate that the codec lacks."""
    if codec == "opus":
        return OpusEncoder(sample_rate_hz)
    if sample_rate_hz not in MP3_RATES_HZ:
        raise ValueError(f"got the rate {sample_rate_hz} Hz, expected one of {MP3_RATES_HZ}")
    return Mp3Encoder(sample_rate_hz)


def _is_here(codec: Codec, sample_rate_hz: int) -> bool:
    try:
        frame_encoder(codec, sample_rate_hz)
    except EngineSetupError:
        return False
    return True


class EncodingRoom:
    """The threads that encode, for all sessions; close it with the server."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="encode")
        codecs: tuple[tuple[Codec, tuple[int, ...]], ...] = (("opus", OPUS_RATES_HZ), ("mp3", MP3_RATES_HZ))
        self._rates: dict[str, tuple[int, ...]] = {codec: rates for codec, rates in codecs if _is_here(codec, rates[0])}

    def rates(self) -> Mapping[str, tuple[int, ...]]:
        """The sample rates of each codec whose library is installed."""
        return self._rates

    def encoder(self, codec: Codec, sample_rate_hz: int) -> ClientEncoder:
        """An encoder for one stream. Raises as `frame_encoder`."""
        return ClientEncoder(frame_encoder(codec, sample_rate_hz), self._threads)

    def close(self) -> None:
        """Waits for the piece being encoded (under a millisecond for 100 ms of audio)."""
        self._threads.shutdown(cancel_futures=True)


class ClientEncoder:
    """One at a time: each call waits for the one before. A cancel may lose the piece being encoded, never mix two."""

    def __init__(self, encoder: FrameEncoder, threads: ThreadPoolExecutor) -> None:
        self._encoder, self._threads = encoder, threads
        self._turn = asyncio.Lock()

    async def encode(self, pcm: bytes) -> list[bytes]:
        """Packets complete with this piece (opus: 20 ms each; mp3: a run of whole frames)."""
        return await self._run(lambda: self._encoder.feed(pcm))

    async def finish(self) -> list[bytes]:
        """The rest of the stream; opus fills up its last packet and may go on."""
        return await self._run(self._encoder.flush)

    async def _run(self, work: Callable[[], list[bytes]]) -> list[bytes]:
        async with self._turn:
            future = asyncio.get_running_loop().run_in_executor(self._threads, work)
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                await asyncio.wait([future])  # the state is in use until then; under a millisecond
                raise
