"""Real Kokoro voices in their worker: English; with the extra local-zh Chinese, and both in one sentence."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from collections.abc import AsyncGenerator

import numpy as np
import pytest
import pytest_asyncio

from engine.api import EngineSetupError, Style, Synthesis, VoiceUnavailable
from engine.audio import bytes_to_ms, peak
from engine.tts.kokoro import Kokoro
from engine.weights import KOKORO
from tests.e2e.local_engines import listen, take_first, until, weights

pytest.importorskip("piper", reason="needs the extra local-hq")
has_chinese = importlib.util.find_spec("misaki") is not None
needs_chinese = pytest.mark.skipif(
    not has_chinese and os.environ.get("CI") != "true", reason="KOKORO'S CHINESE IS NOT TESTED: it needs the extra local-zh (Python < 3.13)"
)
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]
HEART, XIAOBEI = "kokoro/af_heart", "kokoro/zf_xiaobei"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def voices() -> AsyncGenerator[Kokoro, None]:
    made = Kokoro(weights(KOKORO).parent, ("af_heart", "bf_emma", *(("zf_xiaobei",) if has_chinese else ())))
    await made.start()
    yield made
    await made.close()


def length_ms(chunks: list[bytes], hz: int = 24_000) -> float:
    return bytes_to_ms(sum(map(len, chunks)), hz)


@pytest.mark.parametrize(
    ("voice", "text", "least_ms", "most_ms"),
    [
        (HEART, "Hello, how can I help you today?", 1200, 3500),
        ("kokoro/bf_emma", "Hello, how can I help you today?", 1200, 3500),
        pytest.param(XIAOBEI, "你好，今天天气怎么样？", 1200, 4500, marks=needs_chinese),
        pytest.param(XIAOBEI, "我在用 Python 写代码。", 1200, 4500, marks=needs_chinese),
    ],
)
async def test_a_sentence_becomes_sound_of_a_plausible_length(voices: Kokoro, voice: str, text: str, least_ms: int, most_ms: int) -> None:
    chunks = await listen(voices, text, voice)
    assert least_ms < length_ms(chunks) < most_ms
    sound = b"".join(chunks)
    assert 0.05 < peak(sound) <= 1.0
    first = np.flatnonzero(np.abs(np.frombuffer(sound, "<i2")) > 330)[0]
    assert first < 24_000 * 0.05, "there is more than 50 ms of silence before the first sound"


async def test_the_first_clause_is_heard_before_the_sentence_is_made(voices: Kokoro) -> None:
    text = "Well, let me see, the weather in the mountains will be sunny in the morning and rainy in the afternoon, so take a coat."
    loop = asyncio.get_running_loop()
    shares = []
    for _ in range(5):  # whatever else takes the cores may do so in front of the first clause
        stream = voices.synthesize(Synthesis(request_id="long", text=text, voice=HEART, language="en"))
        started = loop.time()
        first = await take_first(stream)
        first_s = loop.time() - started
        rest = [chunk.pcm async for chunk in stream]
        assert len(rest) >= 1
        assert length_ms([first.pcm]) < 0.6 * length_ms([first.pcm, *rest])
        shares.append(first_s / (loop.time() - started))
        if shares[-1] < 0.7:
            return
    pytest.fail(f"the first clause took {shares} of the whole")


async def test_rate_and_loudness_are_heard(voices: Kokoro) -> None:
    usual = await listen(voices, "How are you today?", HEART)
    fast = await listen(voices, "How are you today?", HEART, style=Style(rate=1.6, volume=0.3))
    assert length_ms(fast) < 0.85 * length_ms(usual)
    assert peak(b"".join(fast)) < 0.5 * peak(b"".join(usual))


async def test_another_rate_is_delivered(voices: Kokoro) -> None:
    usual, low = await listen(voices, "How are you?", HEART), await listen(voices, "How are you?", HEART, hz=8_000)
    assert abs(length_ms(low, 8_000) - length_ms(usual)) < 60


@pytest.mark.parametrize(("voice", "text"), [(HEART, "你好，世界"), ("kokoro/nobody", "hello")])
async def test_what_a_voice_cannot_read_is_refused(voices: Kokoro, voice: str, text: str) -> None:
    with pytest.raises(VoiceUnavailable):
        await listen(voices, text, voice)


@pytest.mark.parametrize("text", ["<speak>a & b</speak>", "ok \x00\x07 then", "w" * 200, "3,5 + [[x]] = “?!”", "a" + "." * 300 + "b"])
async def test_strange_texts_are_spoken_or_left_out_and_never_break_the_voice(voices: Kokoro, text: str) -> None:
    await listen(voices, text[:300], HEART)
    assert length_ms(await listen(voices, "Still here.", HEART)) > 400


async def test_a_cancel_ends_a_running_inference(voices: Kokoro) -> None:
    long = "this goes on and on without any mark at all so that it is one single inference of many seconds in length"
    stream = voices.synthesize(Synthesis(request_id="cancelled", text=long, voice=HEART, language="en"))
    waiting = asyncio.ensure_future(take_first(stream))
    await asyncio.sleep(0.4)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await stream.aclose()
    worker = voices._worker
    await until(lambda: not worker._open)
    assert length_ms(await listen(voices, "And now this.", HEART)) > 400


async def test_two_texts_share_the_voice_clause_by_clause(voices: Kokoro) -> None:
    long = "One thing is this, and it is said at length. " * 4
    order: list[str] = []

    async def speak(name: str, text: str) -> None:
        await listen(voices, text, HEART, name=name)
        order.append(name)

    await asyncio.gather(speak("long", long), speak("short", "Hello there."))
    assert order == ["short", "long"]


async def test_missing_files_are_named() -> None:
    with pytest.raises(EngineSetupError, match=r"zm_none\.bin"):
        await Kokoro(weights(KOKORO).parent, ("zm_none",)).start()
