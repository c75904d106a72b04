"""The scripted ears keep the promises that the real ones keep."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import EngineNotReady, Transcript
from engine.fake_listening import Heard, ScriptedEndOfTurn, ScriptedRecognizer
from tests.unit.ears import LOUD, settle, wanted


async def test_each_utterance_gets_its_text_and_partials_grow_with_the_audio() -> None:
    ear = ScriptedRecognizer(
        ["one two three four", Heard(text="zwei", language="de", partials=((500, "zw"), (900, "zwo")))], final_ms=1, partial_ms=1
    )
    await ear.start()
    assert await ear.transcribe(wanted("a", is_final=False)) == Transcript(text="one two", language="en")
    assert await ear.transcribe(wanted("b", is_final=False, pcm=LOUD[:16_000])) == Transcript(text="zw", language="de")
    assert await ear.transcribe(wanted("b", is_final=False)) == Transcript(text="zwo", language="de")
    assert await ear.transcribe(wanted("a")) == Transcript(text="one two three four", language="en")
    assert await ear.transcribe(wanted("b")) == Transcript(text="zwei", language="de")
    assert await ear.transcribe(wanted("c")) == Transcript(text="one two three four", language="en")


async def test_a_final_takes_its_time_and_makes_the_running_partial_needless() -> None:
    ear = ScriptedRecognizer(final_ms=10, partial_ms=10_000)
    await ear.start()
    partial = asyncio.ensure_future(ear.transcribe(wanted("a", is_final=False)))
    await settle()
    began_s = asyncio.get_running_loop().time()
    assert await ear.transcribe(wanted("a")) is not None
    assert asyncio.get_running_loop().time() - began_s >= 0.009
    assert await partial is None
    assert ear.n_open == 0


async def test_cancel_and_death_end_what_is_open() -> None:
    ear = ScriptedRecognizer(final_ms=10_000)
    await ear.start()
    calls = [asyncio.ensure_future(ear.transcribe(wanted(utterance))) for utterance in ("a", "b")]
    await settle()
    ear.cancel("a")
    ear.cancel("nobody")
    assert await calls[0] is None
    ear.die()
    with pytest.raises(EngineNotReady):
        await calls[1]
    with pytest.raises(EngineNotReady):
        await ear.transcribe(wanted("c"))
    assert list(ear.cancelled) == ["a", "nobody"]


async def test_scripted_errors_come_first_and_then_it_works() -> None:
    ear = ScriptedRecognizer([Heard(text="hello", errors=(EngineNotReady,))], final_ms=0)
    await ear.start()
    with pytest.raises(EngineNotReady):
        await ear.transcribe(wanted("a"))
    assert await ear.transcribe(wanted("a")) == Transcript(text="hello", language="en")


async def test_ends_of_turns_are_scored_in_turn_or_by_a_judge() -> None:
    ear = ScriptedEndOfTurn((0.9, 0.1), delay_ms=1)
    with pytest.raises(EngineNotReady):
        await ear.score(LOUD)
    await ear.start()
    assert [await ear.score(LOUD) for _ in range(3)] == [0.9, 0.1, 0.9]
    assert list(ear.asked_ms) == [1000.0] * 3
    judged = ScriptedEndOfTurn(delay_ms=0, judge=lambda pcm: len(pcm) / 64_000)
    await judged.start()
    assert await judged.score(LOUD) == 0.5
