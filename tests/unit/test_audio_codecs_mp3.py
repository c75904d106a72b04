"""MP3 is decoded while it arrives, and sounds as if it had been decoded whole."""

from __future__ import annotations

import random

import lameenc
import miniaudio
import numpy as np
import pytest

from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.mp3 import Mp3Decoder


def encode(pcm: bytes, rate_hz: int = 24_000, kbps: int = 48, channels: int = 1) -> bytes:
    encoder = lameenc.Encoder()
    encoder.set_bit_rate(kbps)
    encoder.set_in_sample_rate(rate_hz)
    encoder.set_channels(channels)
    encoder.set_quality(5)
    encoder.silence()
    return bytes(encoder.encode(pcm)) + bytes(encoder.flush())


def noise(seconds: float, rate_hz: int = 24_000) -> bytes:
    generator = np.random.default_rng(1)
    tone = np.sin(np.arange(int(seconds * rate_hz)) * 0.11) * generator.uniform(0, 9000, int(seconds * rate_hz))
    return bytes(tone.astype("<i2").tobytes())


@pytest.mark.parametrize(("rate_hz", "kbps"), [(24_000, 48), (44_100, 128), (48_000, 32), (16_000, 64)])
def test_pieces_decode_to_the_same_samples_as_the_whole(rate_hz: int, kbps: int) -> None:
    clip = encode(noise(2.0, rate_hz), rate_hz, kbps)
    whole = miniaudio.mp3_read_s16(clip)
    for seed in range(5):
        cuts = random.Random(seed)
        decoder = Mp3Decoder(delay_samples=0)
        pieces, at = [], 0
        while at < len(clip):
            step = cuts.choice([1, 7, 144, 720, 2000])
            pieces.append(decoder.feed(clip[at : at + step]))
            at += step
        decoder.flush()
        assert b"".join(pieces) == whole.samples.tobytes()
        assert decoder.sample_rate_hz == whole.sample_rate


def test_encoder_delay_is_cut_so_that_the_click_stays_in_place() -> None:
    samples = np.zeros(24_000, "<i2")
    samples[6000:6010] = 20_000
    pcm = np.frombuffer(Mp3Decoder().feed(encode(samples.tobytes())), "<i2")
    assert abs(int(np.argmax(np.abs(pcm))) - 6005) < 12


def test_stereo_is_mixed_down() -> None:
    mono = np.frombuffer(noise(1.0), "<i2")
    clip = encode(np.repeat(mono, 2).tobytes(), channels=2, kbps=64)
    pcm = Mp3Decoder().feed(clip)
    assert abs(len(pcm) / 2 - len(mono)) < 3000


@pytest.mark.parametrize("data", [b"<html><body>Service Unavailable</body></html>" * 200, bytes(9000)])
def test_bytes_that_are_no_mp3_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptAudio, match="expected MP3"):
        Mp3Decoder().feed(data)


def test_a_short_text_without_a_frame_is_refused_at_the_end() -> None:
    decoder = Mp3Decoder()
    decoder.feed(b"oops")
    with pytest.raises(CorruptAudio):
        decoder.flush()


def test_a_hole_in_the_stream_costs_silence_and_not_time() -> None:
    clip = bytearray(encode(noise(2.0)))
    clip[144 * 30 + 20 : 144 * 30 + 120] = bytes(100)
    pcm = Mp3Decoder(delay_samples=0).feed(bytes(clip))
    assert len(pcm) == len(clip) // 144 * 576 * 2
