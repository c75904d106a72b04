"""The chain of voices: nothing lost, nothing said twice, every change told, whatever fails."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from itertools import pairwise

import pytest

from engine.api import (
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    EngineStalled,
    SpeechChunk,
    Style,
    Synthesis,
    Synthesizer,
    VoiceUnavailable,
)
from engine.audio import peak
from engine.settings import EdgeSettings
from engine.tts.chain import VoiceChain
from engine.tts.chain.breaker import BreakerSettings
from engine.tts.edge import EdgeVoices
from engine.tts.style import EmotionChange
from engine.tts.voice_table import TableVoice, VoiceTable
from tests.doubles.edge_service import Behavior, EdgeService
from tests.doubles.spoken_tones import listen, tone_of, words_of
from tests.doubles.tone_voice import Mishap, ToneVoice

TEXT = "Every sentence arrives whole, word after word."
TONES = [tone_of(word) for word in words_of(TEXT)]


class Notes:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.faults: list[tuple[str, str, bool]] = []
        self.changes: list[tuple[str, str]] = []

    def on_voice_fault(self, engine: str, kind: str, rests: bool) -> None:
        self.faults.append((engine, kind, rests))

    def on_voice_change(self, asked: str, spoken_by: str) -> None:
        self.changes.append((asked, spoken_by))


def ask(text: str = TEXT, voice: str = "first/0", **more: object) -> Synthesis:
    return Synthesis(request_id="r", text=text, voice=voice, language="en", **more)  # type: ignore[arg-type]  # keywords of the test


async def collect(chain: Synthesizer, synthesis: Synthesis) -> list[SpeechChunk]:
    async with aclosing(chain.synthesize(synthesis)) as stream:
        return [chunk async for chunk in stream]


def heard(chunks: list[SpeechChunk]) -> list[int]:
    return listen(b"".join(chunk.pcm for chunk in chunks))


def voices_of(chunks: list[SpeechChunk]) -> list[str]:
    """Who spoke, in order, without repeats."""
    seen: list[str] = []
    for chunk in chunks:
        if chunk.pcm and (not seen or seen[-1] != chunk.voice):
            seen.append(chunk.voice or "")
    return seen


@pytest.fixture
def first() -> ToneVoice:
    return ToneVoice("first")


@pytest.fixture
def second() -> ToneVoice:
    return ToneVoice("second")


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def chain(first: ToneVoice, second: ToneVoice, notes: Notes) -> VoiceChain:
    return VoiceChain([first, second], settings=BreakerSettings(rest_s=20.0), observer=notes)


async def test_the_voice_that_was_asked_for_speaks(chain: VoiceChain, notes: Notes) -> None:
    chunks = await collect(chain, ask())
    assert (heard(chunks), voices_of(chunks), notes.changes) == (TONES, ["first/0"], [])


async def test_one_fast_fault_does_not_change_the_voice(chain: VoiceChain, first: ToneVoice, notes: Notes) -> None:
    first.mishaps.append(Mishap(error=EngineError("x"), words=3))
    chunks = await collect(chain, ask())
    assert (heard(chunks), voices_of(chunks)) == (TONES, ["first/0"])
    assert notes.faults == [("first", "failed", False)]
    assert [request.text for request in first.requests] == [TEXT, "whole, word after word."]


@pytest.mark.parametrize("words", range(7))
@pytest.mark.parametrize("error", [EngineError("x"), EngineStalled("x"), EngineNotReady("x")])
async def test_another_voice_says_the_rest(chain: VoiceChain, first: ToneVoice, notes: Notes, words: int, error: EngineError) -> None:
    first.mishaps.extend([Mishap(error=error, words=words), Mishap(error=error)])
    chunks = await collect(chain, ask())
    assert heard(chunks) == TONES
    assert voices_of(chunks) == (["first/0", "second/0"] if words else ["second/0"])
    assert notes.changes == [("first/0", "second/0")]
    timed = [word for chunk in chunks for word in chunk.words]
    assert [TEXT[word.start : word.end] for word in timed] == words_of(TEXT)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(timed))


async def test_the_change_lasts_as_long_as_the_rest(chain: VoiceChain, first: ToneVoice) -> None:
    first.mishaps.append(Mishap(error=EngineStalled("x")))
    assert voices_of(await collect(chain, ask())) == ["second/0"]
    assert voices_of(await collect(chain, ask())) == ["second/0"]
    assert len(first.requests) == 1


async def test_a_busy_voice_is_passed_over_once(chain: VoiceChain, first: ToneVoice, notes: Notes) -> None:
    first.mishaps.append(Mishap(error=EngineBusy("x")))
    assert voices_of(await collect(chain, ask())) == ["second/0"]
    assert notes.faults == [("first", "busy", False)]
    assert voices_of(await collect(chain, ask())) == ["first/0"]


async def test_when_all_fail_the_last_error_is_told(chain: VoiceChain, first: ToneVoice, second: ToneVoice) -> None:
    first.mishaps.append(Mishap(error=EngineStalled("first")))
    second.mishaps.append(Mishap(error=EngineNotReady("second")))
    with pytest.raises(EngineNotReady, match="second"):
        await collect(chain, ask())


async def test_a_break_after_the_last_word_is_no_fault_to_repair(chain: VoiceChain, first: ToneVoice) -> None:
    first.mishaps.append(Mishap(error=EngineError("x"), words=6))
    chunks = await collect(chain, ask(TEXT.replace("word.", "...")))
    assert heard(chunks) == TONES[:6]


@pytest.mark.parametrize("words", range(1, 7))
async def test_without_word_times_the_same_voice_says_it_again_unheard(words: int, notes: Notes) -> None:
    voice = ToneVoice("first", has_times=False)
    voice.mishaps.append(Mishap(error=EngineError("x"), words=words, tells_place=False))
    chunks = await collect(VoiceChain([voice], observer=notes), ask())
    assert heard(chunks) == TONES
    assert [request.text for request in voice.requests] == [TEXT, TEXT]


async def test_without_word_times_another_voice_loses_no_word() -> None:
    for words in range(1, 7):
        voice = ToneVoice("first", has_times=False)
        voice.mishaps.append(Mishap(error=EngineStalled("x"), words=words, tells_place=False))
        chunks = await collect(VoiceChain([voice, ToneVoice("second")]), ask())
        missing = [tone for tone in TONES if tone not in heard(chunks)]
        assert missing == []


async def test_the_voice_is_chosen_by_what_it_reads() -> None:
    english, chinese = ToneVoice("first"), ToneVoice("zh", ("zh",))
    chain = VoiceChain([english, chinese])
    assert voices_of(await collect(chain, ask("你好，世界。"))) == ["zh/0"]
    assert english.requests == []
    with pytest.raises(VoiceUnavailable):
        await collect(chain, ask("Привет, мир"))
    assert not chain.can_speak("Привет", "first/0")


async def test_a_voice_of_the_same_language_comes_before_one_that_merely_reads_it() -> None:
    first, german, english = ToneVoice("first"), ToneVoice("de", ("de",)), ToneVoice("en", ("en",))
    first.mishaps.append(Mishap(error=EngineStalled("x")))
    assert voices_of(await collect(VoiceChain([first, german, english]), ask())) == ["en/0"]


async def test_nothing_speakable_asks_nobody(chain: VoiceChain, first: ToneVoice) -> None:
    for text in ("", "  ", "...", "😀"):
        assert await collect(chain, ask(text)) == []
    assert first.requests == []


async def test_a_very_long_text_is_spoken_in_parts() -> None:
    text = "Some words are here to be said. " * 40
    first = ToneVoice("first")
    chunks = await collect(VoiceChain([first]), ask(text))
    assert heard(chunks) == [tone_of(word) for word in words_of(text)]
    assert max(len(request.text) for request in first.requests) <= 500
    timed = [word for chunk in chunks for word in chunk.words]
    assert [text[word.start : word.end] for word in timed] == words_of(text)


async def test_feeling_and_gain_are_resolved_for_the_voice_that_speaks(first: ToneVoice, second: ToneVoice) -> None:
    table = VoiceTable(
        emotions={"sad": EmotionChange(rate=0.9)}, voices={"first/0": TableVoice(gain_db=6.0), "second/0": TableVoice(strength=0.0)}
    )
    chain = VoiceChain([first, second], table)
    first.mishaps.append(Mishap(error=EngineStalled("x")))
    await collect(chain, ask(style=Style(emotion="sad", rate=1.2)))
    assert first.requests[0].style.rate == pytest.approx(1.08)
    assert first.requests[0].style.volume == pytest.approx(1.995, abs=0.01)
    assert (second.requests[0].style.rate, second.requests[0].style.volume) == (1.2, 1.0)


async def test_a_listener_who_leaves_closes_the_voice(chain: VoiceChain, first: ToneVoice) -> None:
    stream = chain.synthesize(ask())
    await anext(stream)
    await stream.aclose()
    assert first.n_closed == 1
    assert voices_of(await collect(chain, ask())) == ["first/0"]


async def test_an_expected_text_reaches_the_engine_of_its_voice(chain: VoiceChain, first: ToneVoice, second: ToneVoice) -> None:
    chain.expect("second/0")
    chain.expect("nobody")
    assert (first.expected, second.expected) == ([], ["second/0"])


async def test_health_is_ready_while_one_voice_is(chain: VoiceChain, first: ToneVoice) -> None:
    assert not chain.health().ready
    await chain.start()
    await first.close()
    assert chain.health().ready
    await chain.close()
    assert not chain.health().ready


def mishap_of(rng: random.Random, n_words: int) -> Mishap | None:
    if rng.random() > 0.4:
        return None
    error = rng.choice([EngineError("x"), EngineStalled("x"), EngineBusy("x"), EngineNotReady("x")])
    return Mishap(error=error, words=rng.randint(0, n_words - 1))


async def test_any_series_of_mishaps_loses_and_repeats_nothing() -> None:
    for seed in range(150):
        rng = random.Random(seed)
        faulty, last = ToneVoice("first"), ToneVoice("second")
        chain = VoiceChain([faulty, last], settings=BreakerSettings(rest_s=1e-9))
        for _ in range(5):
            faulty.mishaps.clear()
            faulty.mishaps.extend(mishap_of(rng, 4) for _ in range(4))
            assert heard(await collect(chain, ask())) == TONES


KNOWN_WAYS = (
    Behavior(drop_at_request=True), Behavior(drop_after_bytes=0), Behavior(drop_after_bytes=2880), Behavior(drop_after_bytes=5040),
    Behavior(stall_after_bytes=0), Behavior(stall_after_bytes=3600), Behavior(end_after_bytes=0), Behavior(end_after_bytes=4320),
    Behavior(garbage="audio"), Behavior(garbage="text"), Behavior(garbage="header"), Behavior(garbage="metadata"), Behavior(garbage="html"),
)  # fmt: skip


@pytest.mark.parametrize("way", KNOWN_WAYS, ids=str)
async def test_a_failing_edge_service_costs_the_listener_no_word(way: Behavior) -> None:
    async with EdgeService().running() as service:
        settings = EdgeSettings(connect_s=0.5, first_audio_s=0.3, next_s=0.2)
        table = VoiceTable(voices={"edge/en-US-AriaNeural": TableVoice(languages=("en",))})
        chain = VoiceChain([EdgeVoices(settings, table.listed("edge"), table.manners, url=service.url), ToneVoice("second")], table)
        await chain.start()
        service.script.extend([way, way])
        chunks = await collect(chain, ask(voice="edge/en-US-AriaNeural"))
        await chain.close()
    assert heard(chunks) == TONES
    timed = [word for chunk in chunks for word in chunk.words]
    assert [TEXT[word.start : word.end] for word in timed] == words_of(TEXT)


async def test_segments_at_once_do_not_mix(chain: VoiceChain, first: ToneVoice) -> None:
    texts = [f"number {i} of many" for i in range(20)]
    first.mishaps.extend([Mishap(error=EngineError("x"), words=i % 3) if i % 2 else None for i in range(20)])
    results = await asyncio.gather(*(collect(chain, ask(text)) for text in texts))
    assert [heard(chunks) for chunks in results] == [[tone_of(word) for word in words_of(text)] for text in texts]
    assert all(peak(chunk.pcm) <= 1.0 for chunks in results for chunk in chunks)


class SlowStarter(ToneVoice):
    """Starts after a while, or not at all."""

    async def start(self) -> None:
        await asyncio.sleep(0.05)
        await super().start()


class Broken(ToneVoice):
    async def start(self) -> None:
        raise EngineSetupError("no voice file")


async def test_a_start_that_fails_leaves_none_at_it() -> None:
    slow = SlowStarter("slow")
    chain = VoiceChain([slow, Broken("broken")])
    with pytest.raises(EngineSetupError, match="no voice file"):
        await chain.start()
    await chain.close()
    await asyncio.sleep(0.1)
    assert not slow.is_ready
