"""G.711 by its tables, and what a microphone sends as the ears want it."""

from __future__ import annotations

import numpy as np
import pytest

from engine.audio_codecs import CorruptAudio, g711
from engine.audio_codecs.g711 import Law
from engine.audio_codecs.incoming import IncomingAudio
from tests.unit.ears import LOUD


@pytest.mark.parametrize(
    ("law", "code", "sample"),
    [
        ("g711u", 0xFF, 0),
        ("g711u", 0x7F, 0),
        ("g711u", 0x80, 32124),
        ("g711u", 0x00, -32124),
        ("g711u", 0xFE, 8),
        ("g711u", 0xF0, 120),
        ("g711u", 0xEF, 132),
        ("g711a", 0xD5, 8),
        ("g711a", 0x55, -8),
        ("g711a", 0xAA, 32256),
        ("g711a", 0x2A, -32256),
        ("g711a", 0xC5, 264),
    ],
)
def test_codes_stand_for_the_levels_of_the_recommendation(law: Law, code: int, sample: int) -> None:
    assert np.frombuffer(g711.decode(bytes([code]), law), "<i2")[0] == sample


@pytest.mark.parametrize("law", ["g711u", "g711a"])
def test_every_code_survives_a_round_trip_and_every_sample_comes_near(law: Law) -> None:
    codes = bytes(code for code in range(256) if not (law == "g711u" and code == 0x7F))  # mu-law's second zero
    assert g711.encode(g711.decode(codes, law), law) == codes
    samples = np.arange(-32_768, 32_768).astype("<i2")
    back = np.frombuffer(g711.decode(g711.encode(samples.tobytes(), law), law), "<i2").astype(np.int32)
    error = np.abs(back - samples)
    assert (error <= np.maximum(8, np.abs(samples.astype(np.int32)) // 16) + 1)[np.abs(samples.astype(np.int32)) < 32_000].all()
    assert (np.diff(back) >= 0).all(), "louder never becomes softer"


@pytest.mark.parametrize(("law", "idle"), [("g711u", 0xFF), ("g711a", 0xD5)])
def test_silence_is_the_idle_line(law: Law, idle: int) -> None:
    assert g711.encode(bytes(4), law)[0] in (idle, idle ^ 0x80)


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(ValueError, match="got 3 bytes"):
        g711.encode(b"\0\0\0", "g711u")


@pytest.mark.parametrize(
    ("codec", "rate_hz"), [("pcm16", 8_000), ("pcm16", 16_000), ("pcm16", 44_100), ("pcm16", 48_000), ("g711u", 8_000), ("g711a", 8_000)]
)
def test_a_tone_keeps_its_pitch_and_length_on_the_way_in(codec: str, rate_hz: int) -> None:
    tone = (8000 * np.sin(2 * np.pi * 500 * np.arange(rate_hz) / rate_hz)).astype("<i2").tobytes()
    data = tone if codec == "pcm16" else g711.encode(tone, "g711u" if codec == "g711u" else "g711a")
    incoming = IncomingAudio(codec, rate_hz)
    pcm = b"".join(incoming.feed(data[start : start + 333]) for start in range(0, len(data), 333)) + incoming.flush()
    heard = np.frombuffer(pcm, "<i2")
    assert abs(len(heard) - 16_000) <= 2
    spectrum = np.abs(np.fft.rfft(heard[:16_000], 16_000))
    assert abs(int(spectrum.argmax()) - 500) <= 1
    assert 5000 < np.abs(heard.astype(int)).max() < 9000


def test_opus_packets_are_heard_and_a_corrupt_one_does_not_end_the_stream() -> None:
    from engine.audio_codecs.opus import OpusEncoder

    packets = OpusEncoder(16_000).feed(LOUD)
    incoming = IncomingAudio("opus")
    pcm = b"".join(incoming.feed(packet) for packet in packets[:10])
    with pytest.raises(CorruptAudio):
        incoming.feed(b"\xff\xff\xff\xff")
    with pytest.raises(CorruptAudio, match="at most 1500 bytes"):
        incoming.feed(bytes(2000))
    pcm += b"".join(incoming.feed(packet) for packet in packets[10:])
    assert len(pcm) == len(LOUD)
    assert np.abs(np.frombuffer(pcm, "<i2").astype(int)).max() > 4000


@pytest.mark.parametrize(
    ("codec", "rate_hz", "told"),
    [("pcm16", 4000, "expected 8000 to 48000"), ("mp3", 16_000, "audio codec 'mp3'"), ("pcm16", 96_000, "got the rate 96000")],
)
def test_what_cannot_be_heard_is_refused(codec: str, rate_hz: int, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        IncomingAudio(codec, rate_hz)
