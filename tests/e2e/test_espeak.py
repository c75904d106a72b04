"""espeak-ng in its worker."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from engine.api import EngineNotReady, Style, Synthesis, VoiceUnavailable
from engine.audio import bytes_to_ms, peak
from engine.tts.espeak import Espeak
from tests.e2e.local_engines import listen, take_first, until

pytestmark = pytest.mark.asyncio(loop_scope="module")
LONG = "The sea covers most of our planet, and we have seen less of it than of the moon. "


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voices() -> AsyncGenerator[Espeak, None]:
    made = Espeak()
    await made.start()
    yield made
    await made.close()


def length_ms(chunks: list[bytes], hz: int = 24_000) -> float:
    return bytes_to_ms(sum(map(len, chunks)), hz)


@pytest.mark.parametrize("hz", [8000, 24_000, 48_000])
async def test_a_sentence_becomes_sound_at_the_asked_rate_in_small_chunks(voices: Espeak, hz: int) -> None:
    chunks = await listen(voices, "Hello, how can I help you today?", "espeak/en", hz=hz)
    assert 1000 < length_ms(chunks, hz) < 4000
    assert len(chunks) > 5
    assert 0.05 < peak(b"".join(chunks)) <= 1.0


@pytest.mark.parametrize(("voice", "text"), [("espeak/de", "Guten Tag."), ("espeak/ru", "Добрый день."), ("espeak/hi", "नमस्ते दुनिया।")])
async def test_other_languages_are_spoken(voices: Espeak, voice: str, text: str) -> None:
    assert voices.can_speak(text, voice)
    assert length_ms(await listen(voices, text, voice)) > 300


async def test_every_listed_voice_speaks(voices: Espeak) -> None:
    for voice in voices.voices():
        assert length_ms(await listen(voices, "Anna 12", voice.id)) > 200, voice.id


async def test_rate_and_volume_are_heard(voices: Espeak) -> None:
    usual = await listen(voices, LONG, "espeak/en")
    assert length_ms(await listen(voices, LONG, "espeak/en", style=Style(rate=2.0))) < 0.7 * length_ms(usual)
    assert peak(b"".join(await listen(voices, LONG, "espeak/en", style=Style(volume=0.2)))) < 0.5 * peak(b"".join(usual))
    again = length_ms(await listen(voices, LONG, "espeak/en"))
    assert again == pytest.approx(length_ms(usual), rel=0.05), "the rate of an earlier text stayed"


async def test_chinese_is_refused(voices: Espeak) -> None:
    assert not voices.can_speak("你好。", "espeak/en")
    with pytest.raises(VoiceUnavailable):
        await listen(voices, "你好。", "espeak/en")


async def test_markup_is_text(voices: Espeak) -> None:
    assert await listen(voices, "<speak>Yes</speak>", "espeak/en") != await listen(voices, "Yes", "espeak/en")


async def test_closing_the_stream_stops_the_speech(voices: Espeak) -> None:
    pid = voices.pid
    stream = voices.synthesize(Synthesis(request_id="x", text=LONG * 20, voice="espeak/en", language="en"))
    await take_first(stream)
    await stream.aclose()
    assert length_ms(await listen(voices, "Yes.", "espeak/en")) > 100
    assert voices.pid == pid


async def test_a_killed_worker_comes_back(voices: Espeak) -> None:
    pid = voices.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not voices.health().ready)
    with pytest.raises(EngineNotReady):
        await listen(voices, "Yes.", "espeak/en")
    await until(lambda: voices.health().ready)
    assert length_ms(await listen(voices, "Yes.", "espeak/en")) > 100
