"""The rules around Whisper: windows, cuts, tokens, disbelief; and its features against the formula written out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.api import EngineSetupError
from engine.asr.whisper import Whisper
from engine.asr.whisper.reading import is_loop, is_silence, most_tokens, near, read
from engine.asr.whisper.windows import LONGEST, split, window_s
from engine.mel import log_mel, normalize

HZ = 16_000
RANDOM = np.random.default_rng(7)


@pytest.mark.parametrize(("length_s", "window"), [(0.1, 10), (4.0, 10), (9.0, 10), (9.5, 15), (14.5, 20), (19.5, 30), (29.0, 30)])
def test_a_window_leaves_a_second_of_silence(length_s: float, window: int) -> None:
    assert window_s(round(length_s * HZ)) == window


def noise(length_s: float) -> NDArray[np.float32]:
    return RANDOM.standard_normal(round(length_s * HZ)).astype(np.float32) * np.float32(0.1)


def test_a_long_utterance_is_cut_where_it_is_quiet_and_stays_cut_there_when_it_grows() -> None:
    samples = noise(70)
    samples[24 * HZ : 24 * HZ + 4000] = 0
    pieces = list(split(samples))
    assert pieces[0][0] == 0
    assert 24 * HZ <= pieces[0][1] <= 24 * HZ + 4000
    assert [start for start, _ in pieces[1:]] == [end for _, end in pieces[:-1]]
    assert pieces[-1][1] == len(samples)
    assert all(end - start <= LONGEST for start, end in pieces)
    assert next(split(samples[: 40 * HZ])) == pieces[0]
    assert list(split(samples, pieces[0][1])) == pieces[1:]


def test_tokens_become_text_also_in_other_scripts_and_cut_characters_are_left_out() -> None:
    assert read(["<|startoftranscript|>", "ĠHello", ",", "Ġworld", "."]) == "Hello, world."
    stand_in = {value: chr(value) for value in (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))}
    hidden = [value for value in range(256) if value not in stand_in]
    stand_in |= {value: chr(256 + n) for n, value in enumerate(hidden)}
    for text in ("你好，世界。", "naïve café", "привет", "👍"):
        signs = "".join(stand_in[value] for value in text.encode())
        assert read([signs]) == text
        assert read([signs[:1], signs[1:]]) == text
    cut = "".join(stand_in[value] for value in "好".encode()[:2])
    assert read(["ok", cut]) == "ok"


def test_what_is_said_once_is_believed_and_loops_and_noise_are_not() -> None:
    assert not is_loop("Unless to be rather cold-hearted and rather selfish is to be ill-disposed.")
    assert not is_loop("No, no, no. Yes.")
    assert not is_loop("")
    assert not is_loop("It was very, very, very cold, and they said no, no, no.")
    assert is_loop("hello how can i help you today " * 6)
    assert is_loop("There was dust on the stairs, and upstairs a window moved in the wind. " + "She put down her bags. " * 3)
    assert is_loop("今天的天气非常好，我们一起去公园走走吧。" + "她放下了包。" * 3)
    assert is_silence(0.8, -1.7)
    assert not is_silence(0.8, -0.3)
    assert not is_silence(0.01, -1.7)
    assert is_silence(0.01, -3.0)


def test_rivals_are_other_texts_that_are_nearly_as_likely() -> None:
    readings = [("I need a hotel enrollment.", -0.43), ("I need a hotel in Rome and.", -0.48), ("I need a hotel in Roman.", -0.54)]
    assert near(readings) == ("I need a hotel in Rome and.",)
    assert near([("I think so.", -0.04), ("I think so...", -1.01)]) == ()
    assert near([("no", -1.0), ("no", -1.05), ("", -1.05), ("now", -1.05), ("now", -1.08)]) == ("now",)
    assert near([("yes", -0.1)]) == ()
    assert most_tokens(2.0) < most_tokens(8.0) < 224


def test_features_are_those_of_the_formula() -> None:
    """Every step written out as the paper has it, slowly and in double precision."""
    samples = normalize(noise(0.5) + np.sin(np.arange(HZ // 2) / 7, dtype=np.float32))
    n_frames = 80
    padded = np.zeros(n_frames * 160 + 400)
    padded[200 : 200 + len(samples)] = samples
    padded[:200] = samples[200:0:-1]
    window = [0.5 - 0.5 * math.cos(2 * math.pi * n / 400) for n in range(400)]
    wave = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    power = np.array([np.abs(wave @ (padded[n * 160 : n * 160 + 400] * window)) ** 2 for n in range(n_frames)])
    corners = [hz_of(mel) for mel in np.linspace(0, 15 + 27 * math.log(8) / math.log(6.4), 82)]
    filters = np.zeros((201, 80))
    for channel in range(80):
        low, middle, high = corners[channel : channel + 3]
        for line in range(201):
            hz = line * 40.0
            height = min((hz - low) / (middle - low), (high - hz) / (high - middle))
            filters[line, channel] = max(0.0, height) * 2 / (high - low)
    expected = np.log10(np.maximum(power @ filters, 1e-10))
    expected = (np.maximum(expected, expected.max() - 8) + 4) / 4
    assert np.abs(log_mel(samples, n_frames) - expected.T).max() < 1e-4


def hz_of(mel: float) -> float:
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


@pytest.mark.parametrize("n_samples", [0, 1, 150, 300, 160_000, 200_000])
def test_features_of_any_length_have_the_shape_asked_for(n_samples: int) -> None:
    features = log_mel(np.full(n_samples, 0.1, np.float32), 1000)
    assert features.shape == (80, 1000)
    assert features.dtype == np.float32
    assert np.isfinite(features).all()


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError, match=r"has no model\.bin"):
        Whisper(tmp_path)
