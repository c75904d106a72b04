"""WAV files of every common kind become mono s16le; what is none is refused with its reason."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from gateway.talk.recording import WrongSound, read_wav

VALUES = (0.0, 0.5, -0.5, 0.25)
FLOATS = b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, 16_000, 64_000, 4, 32) + b"data" + bytes(4)


def write(path: Path, data: bytes, *, width: int = 2, n_channels: int = 1, rate_hz: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(n_channels)
        file.setsampwidth(width)
        file.setframerate(rate_hz)
        file.writeframes(data)
    return path


def packed(values: tuple[float, ...], width: int) -> bytes:
    if width == 1:
        return bytes(round(128 + 128 * value) for value in values)
    full = 2 ** (8 * width - 1)
    return b"".join(int(value * full).to_bytes(width, "little", signed=True) for value in values)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_every_width_keep_their_loudness(tmp_path: Path, width: int) -> None:
    recording = read_wav(write(tmp_path / "a.wav", packed(VALUES, width), width=width))
    assert np.frombuffer(recording.pcm, "<i2").tolist() == [0, 16_384, -16_384, 8_192]
    assert recording.rate_hz == 16_000


def test_channels_are_mixed(tmp_path: Path) -> None:
    stereo = struct.pack("<6h", 1000, 3000, -2000, 0, 32_767, 32_767)
    recording = read_wav(write(tmp_path / "a.wav", stereo, n_channels=2, rate_hz=44_100))
    assert np.frombuffer(recording.pcm, "<i2").tolist() == [2000, -1000, 32_767]
    assert recording.rate_hz == 44_100


@pytest.mark.parametrize(("rate_hz", "becomes_hz"), [(8_000, 8_000), (11_025, 11_025), (48_000, 48_000), (4_000, 16_000), (96_000, 16_000)])
def test_rates_that_no_gateway_takes_are_converted(tmp_path: Path, rate_hz: int, becomes_hz: int) -> None:
    tone = (8_000 * np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz)).astype("<i2").tobytes()
    recording = read_wav(write(tmp_path / "a.wav", tone, rate_hz=rate_hz))
    assert recording.rate_hz == becomes_hz
    assert recording.length_ms == pytest.approx(1000, abs=2)
    loudness = np.sqrt(np.mean(np.frombuffer(recording.pcm, "<i2").astype(float) ** 2))
    assert loudness == pytest.approx(8_000 / np.sqrt(2), rel=0.02)


def test_a_file_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", bytes(400), n_channels=2)
    path.write_bytes(path.read_bytes()[:-3])
    assert len(read_wav(path).pcm) == 2 * 99


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is not a WAV file of PCM"),
        (b"ID3 an MP3 file", "is not a WAV file of PCM"),
        (FLOATS, "unknown format"),
    ],
    ids=["empty", "mp3", "floats"],
)
def test_what_is_no_pcm_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(data)
    with pytest.raises(WrongSound, match=why):
        read_wav(path)


def test_a_missing_file_and_an_empty_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSound, match="cannot read"):
        read_wav(tmp_path / "none.wav")
    with pytest.raises(WrongSound, match="holds no sound"):
        read_wav(write(tmp_path / "a.wav", b""))
