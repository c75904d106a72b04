"""Speech as bad microphones send it, through the real voice detector and the listener; a recognizer of two words, so that it is quick."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from engine.fake_listening import ScriptedRecognizer
from engine.tts.espeak import Espeak
from engine.vad import SileroDetector
from engine.weights import SILERO
from gateway.events import AppendAudio, AudioIn
from tests.e2e.local_engines import PATIENCE_S, listen, weights
from tests.session.test_listener import listening

HZ = 16_000
PAUSE = np.zeros(HZ)
RANDOM = np.random.default_rng(5)
Sound = NDArray[np.float64]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def question() -> AsyncGenerator[Sound, None]:
    """A second of silence, a sentence, a second of silence: 16 kHz."""
    voice = Espeak()
    await voice.start()
    pcm = b"".join(await listen(voice, "What is the weather like in Berlin tomorrow?", "espeak/en", hz=HZ))
    await voice.close()
    yield np.concatenate([PAUSE, np.frombuffer(pcm, "<i2").astype(float), PAUSE])


def sent(sound: Sound) -> bytes:
    return sound.clip(-32_768, 32_767).astype("<i2").tobytes()


async def hear(data: bytes, audio_in: AudioIn, *, bytes_per_ms: float, piece_ms: int = 100) -> list[tuple[str, object]]:
    """What is told of a recording that is sent ten times as fast as it was spoken."""
    detector = SileroDetector(weights(SILERO))
    async with listening(("Heard.",), scores=(), detector=detector, recognizer=ScriptedRecognizer(("Heard.",)), audio_in=audio_in) as scene:
        size = round(bytes_per_ms * piece_ms)
        for at in range(0, len(data), size):
            scene.listener.take(AppendAudio(data=data[at : at + size], pts_ms=at / bytes_per_ms))
            await asyncio.sleep(piece_ms / 10_000)
        async with asyncio.timeout(PATIENCE_S):
            while scene.listener.is_open or scene.listener.is_reading:
                await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        told = [(what, value) for _, what, value in scene.notes.told if what in ("started", "ended", "utterance", "noise")]
    await detector.close()
    return told


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("clean", lambda sound: sound),
        ("clipped", lambda sound: sound * 30),
        ("on a DC offset of a quarter of full scale", lambda sound: sound * 0.5 + 8_000),
        ("on a DC offset of two thirds", lambda sound: sound * 0.3 + 20_000),
        ("faint", lambda sound: sound * 0.02),
    ],
)
async def test_spoilt_speech_is_one_utterance_all_the_same(question: Sound, name: str, spoil: Callable[[Sound], Sound]) -> None:
    told = await hear(sent(spoil(question)), AudioIn(), bytes_per_ms=32)
    assert [what for what, _ in told] == ["started", "ended", "utterance"], name
    (_, began_ms), (_, ended_ms), _ = told
    assert isinstance(began_ms, int)
    assert isinstance(ended_ms, int)
    assert 950 <= began_ms <= 1300
    assert abs(ended_ms - (1000 * len(question) / HZ - 1000)) <= 350


@pytest.mark.parametrize(
    ("name", "sound"),
    [
        ("a DC offset", np.full(4 * HZ, 8_000.0)),
        ("a DC offset that jumps", np.concatenate([PAUSE, np.full(2 * HZ, 12_000.0), PAUSE])),
        ("hiss on a DC offset", 8_000 + RANDOM.normal(0, 30, 4 * HZ)),
        ("the hum of the mains", 3_000 * np.sin(2 * np.pi * 50 * np.arange(4 * HZ) / HZ)),
        ("a click each second", np.tile(np.concatenate([np.full(16, 30_000.0), np.zeros(HZ - 16)]), 4)),
    ],
)
async def test_what_is_no_speech_is_no_utterance(name: str, sound: Sound) -> None:
    told = await hear(sent(sound), AudioIn(), bytes_per_ms=32)
    assert [what for what, _ in told if what == "utterance"] == [], name


async def test_8_khz_labelled_as_48_khz_harms_nobody_and_its_right_name_is_heard(question: Sound) -> None:
    """Six times too fast: a chirp of a third of a second, which may be a noise; never more than that."""
    telephone = sent(question[: len(question) // 2 * 2].reshape(-1, 2).mean(axis=1))
    wrong = await hear(telephone, AudioIn(rate_hz=48_000), bytes_per_ms=96)
    assert len([what for what, _ in wrong if what == "utterance"]) <= 1
    right = await hear(telephone, AudioIn(rate_hz=8_000), bytes_per_ms=16)
    assert [what for what, _ in right] == ["started", "ended", "utterance"]
