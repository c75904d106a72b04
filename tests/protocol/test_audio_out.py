"""What really arrives over a socket in each codec, decoded by other people's decoders."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import miniaudio
import numpy as np
import pytest

from engine.audio_codecs.opus import OpusDecoder
from tests.protocol.peer import Frame, peer
from tests.running import Running, gateway

RATE_HZ = 24_000
HUM_HZ = 440  # what the scripted voice hums


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway({"STRETTO_FAKE__REPLY": "One two three four five. Six seven eight nine ten."}) as started:
        yield started


async def reply(running: Running, codec: str) -> list[Frame]:
    """All frames of one reply, playout reported as it is sent."""
    rate_hz = 8000 if codec.startswith("g711") else RATE_HZ
    async with peer(running.voice_url, start={"audio_out": {"codec": codec, "rate_hz": rate_hz}}) as client:
        await client.send(type="text", text="Count.")
        return await client.frames_until("turn.done")


def decode_g711(byte: int, law: str) -> int:
    """One sample by the formulas of the recommendation, without our tables."""
    if law == "g711u":
        byte = ~byte & 0xFF
        size = (((byte & 0x0F) << 3) + 132 << ((byte & 0x70) >> 4)) - 132
        return -size if byte & 0x80 else size
    byte ^= 0x55
    exponent, mantissa = (byte & 0x70) >> 4, byte & 0x0F
    size = (mantissa << 4) + 8 if exponent == 0 else (mantissa << 4) + 264 << exponent - 1
    return size if byte & 0x80 else -size


def audio(frames: list[Frame]) -> list[bytes]:
    return [frame["data"] for frame in frames if frame["type"] == "audio"]


def pitch_hz(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, "<i2").astype(float)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * RATE_HZ / len(samples)


def told_ms(frames: list[Frame]) -> float:
    return float(sum(frame["audio_ms"] for frame in frames if frame["type"] == "segment.done"))


async def test_opus_packets_decode_one_by_one_to_the_whole_reply(running: Running) -> None:
    frames = await reply(running, "opus")
    decoder = OpusDecoder(RATE_HZ)
    decoded = [decoder.decode(packet) for packet in audio(frames)]
    assert {len(pcm) for pcm in decoded} == {960}
    pcm = b"".join(decoded)
    assert len(pcm) / 48 == told_ms(frames)
    assert pitch_hz(pcm) == pytest.approx(HUM_HZ, abs=2)
    assert sum(map(len, audio(frames))) < len(pcm) / 8


async def test_g711_decodes_by_the_recommendation_to_the_whole_reply(running: Running) -> None:
    laws = ("g711u", "g711a")
    for law, frames in zip(laws, await asyncio.gather(*(reply(running, law) for law in laws)), strict=True):
        samples = np.array([decode_g711(byte, law) for byte in b"".join(audio(frames))], float)
        assert len(samples) / 8 == pytest.approx(told_ms(frames), abs=1)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert float(np.argmax(spectrum)) * 8000 / len(samples) == pytest.approx(HUM_HZ, abs=2)
        assert np.abs(samples).max() / 32768 == pytest.approx(0.25, abs=0.02)


async def test_mp3_frames_decode_as_one_stream(running: Running) -> None:
    frames = await reply(running, "mp3")
    sound = miniaudio.mp3_read_s16(b"".join(audio(frames)))
    assert (sound.nchannels, sound.sample_rate) == (1, RATE_HZ)
    assert 1000 * sound.num_frames / RATE_HZ == pytest.approx(told_ms(frames), abs=1)
    assert pitch_hz(sound.samples.tobytes()) == pytest.approx(HUM_HZ, abs=2)
    starts = [frame["pts_ms"] for frame in frames if frame["type"] == "audio"]
    assert starts == sorted(starts)
    assert starts[0] == 0


async def test_every_codec_sounds_about_as_long(running: Running) -> None:
    pcm, opus, mp3 = map(told_ms, await asyncio.gather(*(reply(running, codec) for codec in ("pcm16", "opus", "mp3"))))
    assert pcm <= opus < pcm + 2 * 20, "two segments, each filled up to a packet"
    assert pcm <= mp3 < pcm + 2 * 150, "two clips, each with its encoder's delay and filled up to whole frames"


async def test_a_rate_that_opus_lacks_is_refused_and_another_start_is_taken(running: Running) -> None:
    async with peer(running.voice_url) as client:
        await client.send(type="session.start", audio_out={"codec": "opus", "rate_hz": 44_100})
        error = await client.until("error")
        assert error["code"] == "unsupported_codec"
        assert "opus takes 8000" in error["message"]
        await client.send(type="session.start", audio_out={"codec": "opus", "rate_hz": 48_000})
        ready = await client.until("session.ready")
        assert ready["audio_out"] == {"codec": "opus", "rate_hz": 48_000}
