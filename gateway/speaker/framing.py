"""A segment's audio in the frames that a client asked for: pcm16 as it is, G.711 sample by sample, opus in packets of 20 ms, MP3 in whole
frames.

Opus and MP3 are encoded elsewhere (`Encoding`, off the loop); here is what belongs together, and how long it sounds. Lengths are media
milliseconds as the listener decodes them, so pacing and what was heard are counted alike for every codec.

PCM joins sample by sample, and so does G.711 (a table of bytes: 17 us for 100 ms). Opus keeps one encoder through the turn; a segment's
last packet is filled up with silence. An MP3 segment is a clip of its own, as online voices deliver them: theirs and ours can follow each
other in one stream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import Literal, Protocol

from msgspec import Struct

from engine.api import SpeechChunk
from engine.audio import bytes_to_ms, ms_to_bytes
from engine.audio_codecs import g711
from engine.audio_codecs.mp3_frames import ENCODER_DELAY_SAMPLES, HEADER_BYTES, Frame, FrameReader, read_header
from gateway.events import AudioOut
from gateway.pacing import FIRST_FRAME_MS, FRAME_MS, OPUS_FRAME_MS, frame_ms
from gateway.speaker.track import Track

VOICES_MP3_HZ = 24_000  # what voices that make MP3 themselves deliver


class Sound(Struct, frozen=True):
    """One frame on the wire, and how long it sounds."""

    data: bytes
    length_ms: float


class Encoder(Protocol):
    """PCM to the client's codec, off the loop."""

    async def encode(self, pcm: bytes) -> list[bytes]:
        """What is complete with this piece."""

    async def finish(self) -> list[bytes]:
        """The rest; an opus encoder may go on afterwards."""


class Encoding(Protocol):
    """Where encoders come from."""

    def rates(self) -> Mapping[str, tuple[int, ...]]:
        """The sample rates of each codec whose library is here."""

    def encoder(self, codec: Literal["opus", "mp3"], sample_rate_hz: int) -> Encoder:
        """For one stream of audio."""


class Framer(Protocol):
    """For one turn. `delay_ms`: silence that the codec puts before a segment's sound. `wants_mp3`: take the voice's own MP3."""

    delay_ms: float
    wants_mp3: bool

    def frames(self, track: Track) -> AsyncGenerator[Sound, None]:
        """The segment's frames as its audio comes; waits for the voice, for a whole frame only as long as the listener has sound."""


def framer(audio_out: AudioOut, encoding: Encoding | None, patience_s: Callable[[], float]) -> Framer:
    """What the client asked for; its wish has been checked against `encoding.rates`. `patience_s`: until the listener runs dry."""
    if audio_out.codec == "pcm16":
        return PcmFramer(audio_out.rate_hz, patience_s)
    if audio_out.codec in ("g711u", "g711a"):
        return G711Framer(audio_out.codec, patience_s)
    assert encoding is not None, "the profile refuses a codec that cannot be encoded"
    return OpusFramer(audio_out.rate_hz, encoding, patience_s) if audio_out.codec == "opus" else Mp3Framer(audio_out.rate_hz, encoding)


class PcmFramer:
    """Slices; the segments' samples follow one another as the voice made them."""

    delay_ms, wants_mp3 = 0.0, False

    def __init__(self, rate_hz: int, patience_s: Callable[[], float]) -> None:
        self._rate_hz, self._patience_s = rate_hz, patience_s

    async def frames(self, track: Track) -> AsyncGenerator[Sound, None]:
        n_frames, least_bytes = 0, ms_to_bytes(FIRST_FRAME_MS, self._rate_hz)
        while pcm := await track.take(ms_to_bytes(frame_ms(n_frames), self._rate_hz), least_bytes, self._patience_s()):
            yield Sound(pcm, bytes_to_ms(len(pcm), self._rate_hz))
            n_frames += 1


class G711Framer:
    """The telephone's bytes, one for each sample of 8 kHz; the voice gives out that rate."""

    delay_ms, wants_mp3 = 0.0, False

    def __init__(self, law: g711.Law, patience_s: Callable[[], float]) -> None:
        self._law, self._pcm = law, PcmFramer(g711.RATE_HZ, patience_s)

    async def frames(self, track: Track) -> AsyncGenerator[Sound, None]:
        async with aclosing(self._pcm.frames(track)) as sounds:
            async for sound in sounds:
                yield Sound(g711.encode(sound.data, self._law), sound.length_ms)


class OpusFramer:
    """Packets of 20 ms. Five are encoded in one go, where the audio is there: a hop to a thread costs as much as a packet."""

    delay_ms, wants_mp3 = 0.0, False

    def __init__(self, rate_hz: int, encoding: Encoding, patience_s: Callable[[], float]) -> None:
        self._rate_hz, self._patience_s, self._encoder = rate_hz, patience_s, encoding.encoder("opus", rate_hz)

    async def frames(self, track: Track) -> AsyncGenerator[Sound, None]:
        n_pieces, least_bytes = 0, ms_to_bytes(OPUS_FRAME_MS, self._rate_hz)
        while pcm := await track.take(ms_to_bytes(frame_ms(n_pieces), self._rate_hz), least_bytes, self._patience_s()):
            for packet in await self._encoder.encode(pcm):
                yield Sound(packet, OPUS_FRAME_MS)
            n_pieces += 1
        for packet in await self._encoder.finish():
            yield Sound(packet, OPUS_FRAME_MS)


class Mp3Framer:
    """The voice's own frames where it makes them at this rate, else encoded here; a voice that steps in may do the other thing."""

    def __init__(self, rate_hz: int, encoding: Encoding) -> None:
        self.delay_ms = 1000 * ENCODER_DELAY_SAMPLES / rate_hz
        self.wants_mp3 = rate_hz == VOICES_MP3_HZ
        self._rate_hz, self._encoding = rate_hz, encoding

    async def frames(self, track: Track) -> AsyncGenerator[Sound, None]:
        clip = _Clip()
        passed: set[str | None] = set()  # voices whose own frames are taken: their PCM is the same sound again
        encoder: Encoder | None = None
        while (chunk := await track.take_chunk()) is not None:
            if self._fits(chunk):
                if encoder is not None:
                    for sound in clip.runs(await encoder.finish()):
                        yield sound
                    clip, encoder = _Clip(), None
                passed.add(chunk.voice)
                for sound in clip.runs([chunk.mp3]):
                    yield sound
            elif chunk.voice not in passed:
                encoder = encoder or self._encoding.encoder("mp3", self._rate_hz)
                for piece in _pieces(chunk.pcm, ms_to_bytes(FRAME_MS, self._rate_hz)):
                    for sound in clip.runs(await encoder.encode(piece)):
                        yield sound
        for sound in clip.runs(await encoder.finish() if encoder is not None else []):
            yield sound

    def _fits(self, chunk: SpeechChunk) -> bool:
        header = read_header(chunk.mp3, 0) if self.wants_mp3 and len(chunk.mp3) >= HEADER_BYTES else None
        return header is not None and header.sample_rate_hz == self._rate_hz


class _Clip:
    """Whole MP3 frames, a first one alone and then about 100 ms in a run."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._is_first = True

    def runs(self, data: list[bytes]) -> Iterator[Sound]:
        frames = [frame for each in data for frame in self._reader.feed(each) if not frame.is_tag]
        while frames:
            n = 1 if self._is_first else max(1, round(FRAME_MS / _ms(frames[0])))
            run, frames = frames[:n], frames[n:]
            self._is_first = False
            yield Sound(b"".join(frame.data for frame in run), sum(map(_ms, run)))


def _ms(frame: Frame) -> float:
    return 1000 * frame.n_samples / frame.sample_rate_hz


def _pieces(pcm: bytes, n_bytes: int) -> Iterator[bytes]:
    for start in range(0, len(pcm), n_bytes):
        yield pcm[start : start + n_bytes]
