"""PCM arithmetic: lengths, slices, rates, loudness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.audio import SAMPLE_BYTES, Resampler, apply_gain, bytes_to_ms, from_float, ms_to_bytes, peak, silence, slice_frames


def tone(n_samples: int, hz: float, sample_rate_hz: int, level: float) -> bytes:
    return from_float((level * np.sin(np.arange(n_samples) * 2 * np.pi * hz / sample_rate_hz)).astype(np.float32))


@pytest.mark.parametrize(
    ("ms", "hz", "n_bytes"), [(20, 24_000, 960), (100, 24_000, 4800), (0, 8000, 0), (10, 22_050, 440), (10, 44_100, 882), (0.5, 16_000, 16)]
)
def test_milliseconds_become_whole_samples(ms: float, hz: int, n_bytes: int) -> None:
    assert ms_to_bytes(ms, hz) == n_bytes
    assert len(silence(ms, hz)) == n_bytes


@given(st.integers(0, 10_000_000), st.sampled_from([8000, 16_000, 22_050, 24_000, 44_100, 48_000]))
def test_lengths_survive_the_way_there_and_back(n_samples: int, hz: int) -> None:
    assert ms_to_bytes(bytes_to_ms(n_samples * SAMPLE_BYTES, hz), hz) == n_samples * SAMPLE_BYTES


@pytest.mark.parametrize(("n_bytes", "sizes"), [(0, []), (3, [3]), (4, [4]), (5, [4, 1]), (24, [4, 10, 10]), (25, [4, 10, 10, 1])])
def test_slices_are_one_first_frame_and_equal_next_ones(n_bytes: int, sizes: list[int]) -> None:
    pcm = bytes(range(n_bytes))
    frames = list(slice_frames(pcm, 4, 10))
    assert [len(frame) for frame in frames] == sizes
    assert b"".join(frames) == pcm


@pytest.mark.parametrize("to_hz", [8000, 16_000, 22_050, 24_000, 48_000])
def test_resampled_audio_keeps_its_length_and_its_tone(to_hz: int) -> None:
    resampler = Resampler(22_050, to_hz)
    out = np.frombuffer(resampler.feed(tone(22_050, 440, 22_050, 0.5)) + resampler.flush(), "<i2")
    assert abs(len(out) - to_hz) <= 1
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out))))
    assert abs(int(spectrum.argmax()) * to_hz / len(out) - 440) <= 2
    assert 0.45 <= np.abs(out).max() / 32_768 <= 0.55


@given(st.lists(st.integers(0, 999), max_size=8))
def test_resampling_is_the_same_however_the_stream_was_cut(cuts: list[int]) -> None:
    pcm = tone(500, 440, 22_050, 0.5)
    whole = Resampler(22_050, 24_000)
    expected = whole.feed(pcm) + whole.flush()
    edges = [0, *sorted(cuts), len(pcm)]
    pieces = Resampler(22_050, 24_000)
    got = b"".join(pieces.feed(pcm[a:b]) for a, b in itertools.pairwise(edges)) + pieces.flush()
    assert len(got) == len(expected)
    difference = np.frombuffer(got, "<i2").astype(np.int32) - np.frombuffer(expected, "<i2")
    assert np.abs(difference).max() <= 2, "more than the dither of the last bit"


def test_equal_rates_pass_through_whole_samples() -> None:
    resampler = Resampler(24_000, 24_000)
    assert resampler.feed(b"\x01\x02\x03") == b"\x01\x02"
    assert resampler.feed(b"\x04") == b"\x03\x04"
    assert resampler.feed(b"\x05") + resampler.flush() == b""


def test_a_rate_that_is_no_rate_is_refused() -> None:
    with pytest.raises(ValueError, match="0"):
        Resampler(0, 24_000)


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.5, 3.0, 100.0])
def test_gain_keeps_sign_and_order_and_never_wraps(factor: float) -> None:
    samples = np.arange(-32_768, 32_768, 7, dtype="<i2")
    out = np.frombuffer(apply_gain(samples.tobytes(), factor), "<i2")
    assert len(out) == len(samples)
    assert (np.diff(out.astype(np.int32)) >= 0).all()
    assert (np.sign(out) * np.sign(samples) >= 0).all()


def test_quiet_audio_is_multiplied_exactly_and_loud_audio_bends_below_full_scale() -> None:
    quiet = np.array([100, -1000, 5000], "<i2")
    assert np.allclose(np.frombuffer(apply_gain(quiet.tobytes(), 2.0), "<i2"), quiet * 2, atol=1)
    loud = apply_gain(tone(2400, 300, 24_000, 0.9), 2.0)
    assert 0.9 < peak(loud) <= 1.0
    assert peak(apply_gain(tone(2400, 300, 24_000, 0.5), 1.5)) < 0.8


def test_peak_of_nothing_and_of_the_lowest_sample() -> None:
    assert peak(b"") == 0.0
    assert peak(np.array([-32_768], "<i2").tobytes()) == 1.0
