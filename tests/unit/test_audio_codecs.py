"""Opus, Ogg, WAV and the encoders for clients: round trips, any cut, and what is no audio."""

from __future__ import annotations

import asyncio
import random
import struct

import numpy as np
import opuscodec
import pytest

from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.encoders import EncodingRoom, frame_encoder
from engine.audio_codecs.mp3 import Mp3Decoder
from engine.audio_codecs.opus import OggOpusDecoder, OpusDecoder, OpusEncoder
from engine.audio_codecs.wav import WavDecoder
from tests.doubles.spoken_tones import listen, speak, tone_of, words_of

TEXT = "some words to tell apart"
TONES = [tone_of(word) for word in words_of(TEXT)]


def pieces(data: bytes, seed: int) -> list[bytes]:
    cuts, at, out = random.Random(seed), 0, []
    while at < len(data):
        step = cuts.choice([1, 3, 50, 1000])
        out.append(data[at : at + step])
        at += step
    return out


def wav(pcm: bytes, rate_hz: int = 16_000, channels: int = 1, size: int | None = None, extra: bytes = b"") -> bytes:
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate_hz, rate_hz * 2 * channels, 2 * channels, 16)
    length = len(pcm) if size is None else size
    return b"RIFF" + struct.pack("<I", 0xFFFFFFFF) + b"WAVE" + head + extra + b"data" + struct.pack("<I", length) + pcm


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_opus_packets_carry_the_words(rate_hz: int) -> None:
    encoder, decoder = OpusEncoder(rate_hz), OpusDecoder(rate_hz)
    pcm = speak(TEXT, rate_hz)
    packets = [packet for piece in pieces(pcm, 1) for packet in encoder.feed(piece)] + encoder.flush()
    decoded = [decoder.decode(packet) for packet in packets]
    assert {len(sound) for sound in decoded} == {rate_hz // 50 * 2}
    assert len(packets) == -(-len(pcm) // (rate_hz // 50 * 2))
    assert listen(b"".join(decoded), rate_hz) == TONES
    assert sum(map(len, packets)) * 8 < 40_000 * len(pcm) / 2 / rate_hz
    assert encoder.lookahead_samples == rate_hz * 65 // 10_000


def test_a_lost_and_a_broken_opus_packet() -> None:
    decoder = OpusDecoder(24_000)
    assert len(decoder.decode(b"")) == 960
    with pytest.raises(CorruptAudio):
        decoder.decode(b"\xff" * 3)


def test_a_rate_that_opus_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="22050"):
        OpusEncoder(22_050)
    with pytest.raises(ValueError, match="9000"):
        frame_encoder("mp3", 9_000)


@pytest.mark.parametrize("seed", range(4))
def test_ogg_opus_is_decoded_at_any_cut(seed: int) -> None:
    encoder = opuscodec.OpusBufferedEncoder(sample_rate=24_000, channels=1)
    samples = np.frombuffer(speak(TEXT), "<i2").reshape(-1, 1)
    stream = encoder.write(samples) + encoder.flush()
    decoder = OggOpusDecoder()
    pcm = b"".join(decoder.feed(piece) for piece in pieces(stream, seed))
    decoder.flush()
    assert listen(pcm, 48_000) == TONES


@pytest.mark.parametrize("data", [b"<html>" * 2000, bytes(9000), b"OggS" + bytes(22) + b"\x01\x0chello, world"])
def test_what_is_no_ogg_opus_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptAudio):
        OggOpusDecoder().feed(data)
    with pytest.raises(CorruptAudio):
        OggOpusDecoder().flush()


@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
@pytest.mark.parametrize("extra", [b"", b"LIST\x03\x00\x00\x00abc\x00"])
def test_wav_is_read_while_it_is_written(size: int | None, extra: bytes) -> None:
    pcm = speak(TEXT, 16_000)
    for seed in range(3):
        decoder = WavDecoder()
        assert b"".join(decoder.feed(piece) for piece in pieces(wav(pcm, size=size, extra=extra), seed)) == pcm
        decoder.flush()
        assert decoder.sample_rate_hz == 16_000


def test_wav_channels_are_mixed_and_a_trailing_chunk_is_not_sound() -> None:
    stereo = np.array([[100, 300], [-100, -300]], "<i2").tobytes()
    decoder = WavDecoder()
    assert decoder.feed(wav(stereo, channels=2) + b"LIST\x04\x00\x00\x00abcd") == np.array([200, -200], "<i2").tobytes()


@pytest.mark.parametrize("data", [b"<html>no</html>", wav(b"")[:20] + b"\x03" + wav(b"")[21:], wav(b"").replace(b"fmt ", b"junk")])
def test_what_is_no_wav_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptAudio):
        WavDecoder().feed(data)


def test_a_wav_that_ends_in_its_header_is_refused() -> None:
    decoder = WavDecoder()
    assert decoder.feed(wav(b"")[:30]) == b""
    with pytest.raises(CorruptAudio):
        decoder.flush()


def test_mp3_for_clients_carries_the_words() -> None:
    encoder = frame_encoder("mp3", 24_000)
    frames = [part for at in range(0, len(speak(TEXT)), 4802) for part in encoder.feed(speak(TEXT)[at : at + 4802])] + encoder.flush()
    assert listen(Mp3Decoder().feed(b"".join(frames))) == TONES


def test_an_mp3_stream_without_sound_is_empty() -> None:
    assert frame_encoder("mp3", 24_000).flush() == []


async def test_encoding_happens_in_order_off_the_loop() -> None:
    room = EncodingRoom()
    encoder, decoder = room.encoder("opus", 24_000), OpusDecoder(24_000)
    pcm = speak(TEXT)
    parts = await asyncio.gather(*(encoder.encode(pcm[at : at + 4800]) for at in range(0, len(pcm), 4800)))
    packets = [packet for part in parts for packet in part] + await encoder.finish()
    assert listen(b"".join(map(decoder.decode, packets))) == TONES
    room.close()
