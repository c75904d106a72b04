"""`stretto talk --wav` against a real gateway with scripted ears: a question is said, understood, answered and written."""

from __future__ import annotations

import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.hummed_speech import hum
from tests.running import Running, gateway

EARS = {
    "STRETTO_ASR__ENGINE": "fake",
    "STRETTO_LISTEN__VAD": "fake",
    "STRETTO_LISTEN__END_OF_TURN": "fake",
    "STRETTO_FAKE__HEARD": '["What is down there?"]',
    "STRETTO_FAKE__REPLY": "The sea is wide. It is deep.",
}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway(EARS) as started:
        yield started


@pytest.mark.parametrize("arguments", [(), ("--fast",)], ids=["at its pace", "fast"])
def test_a_question_in_a_file_is_answered(running: Running, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    question, reply = hum(tmp_path / "question.wav", [(0.3, 1.5)], length_s=2.0), tmp_path / "reply.wav"
    command = [sys.executable, "-m", "gateway", "talk", "--url", running.voice_url, "--wav", str(question), "--out", str(reply), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "you: What is down there?" in lines
    assert any(line.endswith("The sea is wide.") for line in lines)
    first_audio_ms = float(next(line for line in lines if "(first audio)" in line).split()[0])
    assert 0 < first_audio_ms < 110_000
    with wave.open(str(reply)) as sound:
        assert sound.getnframes() / sound.getframerate() > 0.5


def test_a_file_without_speech_says_so(running: Running, tmp_path: Path) -> None:
    quiet = hum(tmp_path / "quiet.wav", [], length_s=0.5)
    command = [sys.executable, "-m", "gateway", "talk", "--url", running.voice_url, "--wav", str(quiet), "--text-only"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert (done.returncode, done.stdout.count("you:")) == (1, 0)
    assert "no speech was heard" in done.stderr
