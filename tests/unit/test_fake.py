"""The scripted engines keep the promises of `engine/api`, on virtual time."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from engine.api import (
    ContextTooLong,
    Delta,
    EngineNotReady,
    EngineStalled,
    Generation,
    Kept,
    LanguageModel,
    Message,
    Prompt,
    Sampling,
    Synthesis,
    Synthesizer,
    ToolCall,
    VoiceUnavailable,
)
from engine.fake import Fault, Script, ScriptedModel, ScriptedVoice, hum, speech_ms, tokenize
from tests.session.virtual_loop import VirtualLoop

pytestmark = pytest.mark.virtual
USER = (Message(role="user", text="Tell me about the sea, in a few words please, and take your time about it."),)


async def started(model: ScriptedModel) -> ScriptedModel:
    await model.start()
    return model


async def ask(model: ScriptedModel, request_id: str = "r1", *, sampling: Sampling | None = None, kept: Kept | None = None) -> list[Delta]:
    prompt = await model.render(USER, (), kept)
    generation = Generation(request_id=request_id, prompt=prompt, sampling=sampling or Sampling())
    async with aclosing(model.generate(generation)) as deltas:
        return [delta async for delta in deltas]


def test_the_doubles_are_engines() -> None:
    model: LanguageModel = ScriptedModel()
    voice: Synthesizer = ScriptedVoice()
    assert (model.health().ready, voice.health().ready) == (False, False)


@pytest.mark.parametrize("text", ["Hello, it's 12345 o'clock.", "今天天气很好，我们去看海吧。OK?", " \n\n a  b", "naïve café 🌊🌊", ""])
def test_tokens_join_to_the_text(text: str) -> None:
    assert "".join(tokenize(text)) == text
    assert all(1 <= len(token) <= 7 for token in tokenize(text))


async def test_deltas_come_on_time_and_the_last_one_has_usage() -> None:
    model = await started(ScriptedModel([Script(tokens=("One", " two", "."))], ttft_ms=80, itl_ms=20))
    loop = asyncio.get_running_loop()
    start, times = loop.time(), []
    prompt = await model.render(USER, (), None)
    async with aclosing(model.generate(Generation(request_id="r", prompt=prompt))) as deltas:
        got = []
        async for delta in deltas:
            got.append(delta)
            times.append(round((loop.time() - start) * 1000))
    assert times == [80, 100, 120, 120]
    assert "".join(d.text for d in got) == "One two."
    assert got[-1].finish == "stop"
    assert got[-1].usage is not None
    assert (got[-1].usage.output_tokens, got[-1].usage.prompt_tokens) == (3, len(prompt.ids))


async def test_a_slow_consumer_does_not_slow_the_script() -> None:
    model = await started(ScriptedModel([Script(tokens=("a",) * 10)], ttft_ms=10, itl_ms=10))
    start = asyncio.get_running_loop().time()
    async with aclosing(model.generate(Generation(request_id="r", prompt=Prompt(messages=USER)))) as deltas:
        async for delta in deltas:
            if delta.finish is None:
                await asyncio.sleep(0.005)
    assert asyncio.get_running_loop().time() - start == pytest.approx(0.105)


async def test_cancel_ends_the_stream_at_once_and_says_so() -> None:
    model = await started(ScriptedModel([Script(tokens=("a", "b", "c"))], ttft_ms=100, itl_ms=1000))
    loop = asyncio.get_running_loop()
    start = loop.time()
    loop.call_later(0.5, model.cancel, "r1")
    deltas = await ask(model)
    assert [d.text for d in deltas] == ["a", ""]
    assert deltas[-1].finish == "cancelled"
    assert loop.time() - start == pytest.approx(0.5)
    assert list(model.cancelled) == ["r1"]
    model.cancel("r1")  # finished ids are ignored
    assert list(model.cancelled) == ["r1"]


async def test_a_cancelled_consumer_frees_the_request() -> None:
    model = await started(ScriptedModel())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await ask(model)
    assert model.n_open == 0
    assert list(model.abandoned) == ["r1"]


async def test_failure_comes_before_the_chosen_delta() -> None:
    model = await started(ScriptedModel([Script(tokens=("a", "b", "c"), fault=Fault(at=2, error=EngineStalled))]))
    prompt, got = await model.render(USER, (), None), []
    with pytest.raises(EngineStalled):  # noqa: PT012 (what came before matters)
        async with aclosing(model.generate(Generation(request_id="r", prompt=prompt))) as deltas:
            async for delta in deltas:
                got.append(delta.text)
    assert got == ["a", "b"]
    assert not model.abandoned


async def test_a_stall_lasts_until_someone_cancels() -> None:
    model = await started(ScriptedModel([Script(tokens=("a", "b"), fault=Fault(at=1, error=None))]))
    asyncio.get_running_loop().call_later(900, model.cancel, "r1")
    assert [d.finish for d in await ask(model)] == [None, "cancelled"]


async def test_death_ends_open_requests_and_start_revives() -> None:
    model = await started(ScriptedModel(ttft_ms=1000))
    asyncio.get_running_loop().call_later(0.5, model.die, "killed")
    with pytest.raises(EngineNotReady, match="killed"):
        await ask(model)
    with pytest.raises(EngineNotReady):
        await ask(model, "r2")
    await model.start()
    assert (await ask(model, "r3"))[-1].finish == "stop"


async def test_scripts_take_turns_and_a_warm_up_uses_none() -> None:
    model = await started(ScriptedModel(["One.", "Two."]))
    warm_up = Generation(request_id="w", prompt=Prompt(messages=USER), priority=20)
    async with aclosing(model.generate(warm_up)) as deltas:
        assert len([d async for d in deltas]) == 2
    replies = ["".join(d.text for d in await ask(model, f"r{n}")) for n in range(3)]
    assert replies == ["One.", "Two.", "One."]


async def test_length_and_tool_calls_are_finish_reasons() -> None:
    call = ToolCall(call_id="c", name="f", arguments="{}")
    model = await started(ScriptedModel(["One two three.", Script(tokens=(), tool_calls=(call,))]))
    assert (await ask(model, sampling=Sampling(max_tokens=2)))[-1].finish == "length"
    last = (await ask(model, "r2"))[-1]
    assert (last.finish, last.tool_calls) == ("tool_calls", (call,))


async def test_kept_ids_are_reused_and_count_as_cached() -> None:
    model = await started(ScriptedModel())
    first = await model.render(USER, (), None)
    answer = await ask(model)
    spoken = "".join(d.text for d in answer)
    kept = Kept(ids=first.ids + tuple(i for d in answer for i in d.ids), text=first.text + spoken)
    longer = (*USER, Message(role="assistant", text=spoken), Message(role="user", text="And the moon?"))
    second = await model.render(longer, (), kept)
    assert second.reused == len(kept.ids)
    assert second.ids[: len(kept.ids)] == kept.ids
    async with aclosing(model.generate(Generation(request_id="r2", prompt=second))) as deltas:
        usage = [d async for d in deltas][-1].usage
    assert usage is not None
    assert len(kept.ids) - 16 < usage.cached_tokens <= len(kept.ids)
    assert usage.cached_tokens % 16 == 0


async def test_a_prompt_longer_than_the_context_is_refused() -> None:
    model = await started(ScriptedModel(context_tokens=10))
    with pytest.raises(ContextTooLong, match="the context holds 10"):
        await model.render(USER, (), None)


async def test_voice_hums_as_long_as_its_text_and_at_its_speed(virtual: VirtualLoop) -> None:
    voice = ScriptedVoice(first_chunk_ms=60, rtf=0.5, chunk_ms=100)
    await voice.start()
    start, times, n_bytes = virtual.time(), [], 0
    async with aclosing(voice.synthesize(synthesis("Hello sea."))) as chunks:
        async for chunk in chunks:
            times.append(round((virtual.time() - start) * 1000))
            n_bytes += len(chunk.pcm)
    assert times == [60, 110, 160, 210, 260, 310]
    assert n_bytes == 600 * 24 * 2 == speech_ms("Hello sea.") * 48


def synthesis(text: str, voice: str = "fake-en") -> Synthesis:
    return Synthesis(request_id="s1", text=text, voice=voice, language="en")


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 22_050, 24_000, 48_000])
def test_pieces_of_a_hum_join_to_the_whole(rate_hz: int) -> None:
    pieces = b"".join(hum("fake-en", rate_hz, start, 70) for start in range(0, 2800, 70))
    assert pieces == hum("fake-en", rate_hz, 0, 2800)


async def test_a_voice_without_han_refuses_chinese() -> None:
    voice = ScriptedVoice(reads_han=False)
    await voice.start()
    assert voice.can_speak("Hello.", "fake-en")
    assert not voice.can_speak("你好。", "fake-en")
    with pytest.raises(VoiceUnavailable):
        await anext(voice.synthesize(synthesis("你好。")))
    with pytest.raises(VoiceUnavailable, match="fake-low"):
        await anext(voice.synthesize(synthesis("Hello.", voice="../x")))


async def test_a_voice_fails_where_it_is_told() -> None:
    voice = ScriptedVoice(faults={"boom": Fault(at=1, error=EngineNotReady)})
    await voice.start()
    n_chunks = 0
    with pytest.raises(EngineNotReady):  # noqa: PT012 (what came before matters)
        async with aclosing(voice.synthesize(synthesis("Here it goes boom."))) as chunks:
            async for _ in chunks:
                n_chunks += 1
    assert n_chunks == 1
    assert (voice.n_open, list(voice.abandoned), list(voice.finished)) == (0, [], [])


async def test_a_closed_voice_stream_is_abandoned() -> None:
    voice = ScriptedVoice()
    await voice.start()
    async with aclosing(voice.synthesize(synthesis("A long sentence about the sea."))) as chunks:
        await anext(chunks)
    assert (voice.n_open, list(voice.abandoned)) == (0, ["s1"])


async def test_words_are_timed_within_the_segment() -> None:
    voice = ScriptedVoice(word_timings=True)
    await voice.start()
    async with aclosing(voice.synthesize(synthesis("Hello big sea."))) as chunks:
        words = [w async for chunk in chunks for w in chunk.words]
    assert [("Hello big sea."[w.start : w.end]) for w in words] == ["Hello", "big", "sea."]
    assert words[-1].end_ms == speech_ms("Hello big sea.")
