"""A real Piper voice in its worker."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from engine.api import EngineNotReady, EngineSetupError, SpeechChunk, Style, Synthesis, VoiceUnavailable
from engine.audio import bytes_to_ms, peak
from engine.tts.piper import Piper
from engine.weights import PIPER_JOE
from tests.e2e.local_engines import listen, take_first, until, weights

pytestmark = pytest.mark.asyncio(loop_scope="module")
JOE = "piper/en_US-joe-medium"
LONG = "The sea covers most of our planet, and we have seen less of it than of the moon. Its deepest valley lies eleven kilometers down."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voices() -> AsyncGenerator[Piper, None]:
    made = Piper([weights(PIPER_JOE)])
    await made.start()
    yield made
    await made.close()


def length_ms(chunks: list[bytes], hz: int = 24_000) -> float:
    return bytes_to_ms(sum(map(len, chunks)), hz)


def loudness(pcm: bytes) -> float:
    return float(np.sqrt(np.mean(np.square(np.frombuffer(pcm, "<i2").astype(np.float64)))))


async def drain(stream: AsyncGenerator[SpeechChunk, None]) -> None:
    while True:
        await take_first(stream)


async def test_a_sentence_becomes_sound_of_a_plausible_length_and_loudness(voices: Piper) -> None:
    assert [(voice.id, voice.languages) for voice in voices.voices()] == [(JOE, ("en",))]
    chunks = await listen(voices, "Hello, how can I help you today?", JOE)
    assert 1000 < length_ms(chunks) < 4000
    assert all(len(chunk) % 2 == 0 for chunk in chunks)
    assert 0.1 < peak(b"".join(chunks)) <= 1.0
    first_sound = np.flatnonzero(np.abs(np.frombuffer(b"".join(chunks), "<i2")) > 330)[0]
    assert first_sound < 24_000 * 0.05, "there is more than 50 ms of silence before the first sound"


@pytest.mark.parametrize("hz", [8000, 16_000, 22_050, 48_000])
async def test_the_asked_rate_is_delivered(voices: Piper, hz: int) -> None:
    assert 700 < length_ms(await listen(voices, "How are you today?", JOE, hz=hz), hz) < 2500


async def test_a_long_text_comes_in_several_chunks(voices: Piper) -> None:
    assert len(await listen(voices, LONG, JOE)) >= 3


async def test_rate_and_volume_are_heard(voices: Piper) -> None:
    usual = await listen(voices, LONG, JOE)
    fast = await listen(voices, LONG, JOE, style=Style(rate=2.0))
    assert length_ms(fast) < 0.75 * length_ms(usual)
    loud, soft = [b"".join(await listen(voices, LONG, JOE, style=Style(volume=volume))) for volume in (3.0, 0.3)]
    assert loudness(loud) > 1.5 * loudness(b"".join(usual)) > 3 * loudness(soft)
    assert peak(loud) <= 1.0


@pytest.mark.parametrize("text", ["你好。", "😀", "...", " "])
async def test_what_the_voice_cannot_read_is_refused_before_it_makes_noise(voices: Piper, text: str) -> None:
    assert not voices.can_speak(text, JOE)
    with pytest.raises(VoiceUnavailable):
        await listen(voices, text, JOE)


@pytest.mark.parametrize("voice", ["piper/nobody", "../../etc/passwd", ""])
async def test_an_unknown_voice_is_refused(voices: Piper, voice: str) -> None:
    assert not voices.can_speak("Hello.", voice)
    with pytest.raises(VoiceUnavailable, match="piper has piper/en_US"):
        await listen(voices, "Hello.", voice)


async def test_double_brackets_are_text_and_not_phonemes(voices: Piper) -> None:
    spelled, plain = [length_ms(await listen(voices, text, JOE)) for text in ("[[hhhhhhhhhhhhhhhh]]", "[hhhhhhhhhhhhhhhh]")]
    assert spelled > 0.6 * plain


async def test_two_texts_are_spoken_in_turns(voices: Piper) -> None:
    ended = []

    async def speak(name: str, text: str) -> None:
        await listen(voices, text, JOE, name=name)
        ended.append(name)

    await asyncio.gather(speak("long", LONG * 3), speak("short", "Yes."))
    assert ended == ["short", "long"]


async def test_closing_the_stream_interrupts_the_inference_and_frees_the_voice(voices: Piper) -> None:
    pid = voices.pid
    endless = Synthesis(request_id="x", text="Yes. " + LONG.replace(",", "").replace(".", "") * 8, voice=JOE, language="en")
    stream = voices.synthesize(endless)
    await take_first(stream)
    await stream.aclose()
    assert length_ms(await listen(voices, "Yes.", JOE)) > 200
    assert voices.pid == pid


async def test_a_worker_killed_in_the_middle_of_a_sentence_ends_it_and_comes_back(voices: Piper) -> None:
    pid = voices.pid
    assert pid is not None
    stream = voices.synthesize(Synthesis(request_id="x", text=LONG * 10, voice=JOE, language="en"))
    await take_first(stream)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineNotReady):
        await drain(stream)
    await until(lambda: voices.health().ready)
    assert voices.pid != pid
    assert length_ms(await listen(voices, "Yes.", JOE)) > 200


async def test_any_voice_file_can_be_added_and_a_broken_one_stops_the_start(tmp_path: Path) -> None:
    joe = weights(PIPER_JOE)
    for suffix in ("", ".json"):
        shutil.copy(f"{joe}{suffix}", tmp_path / f"mine.onnx{suffix}")
    both = Piper([joe, tmp_path / "mine.onnx"])
    await both.start()
    try:
        assert [voice.id for voice in both.voices()] == [JOE, "piper/mine"]
        assert length_ms(await listen(both, "Yes.", "piper/mine")) > 200
    finally:
        await both.close()
    os.truncate(tmp_path / "mine.onnx", 1000)
    with pytest.raises(EngineSetupError, match=r"mine\.onnx is not an ONNX model"):
        await Piper([tmp_path / "mine.onnx"]).start()
