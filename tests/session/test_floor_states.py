"""Speech in every state of a turn: words stop it cleanly, nothing understood changes nothing, and one answer is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from engine.api import ToolCall
from engine.fake import Script, ScriptedModel, ScriptedVoice, tokenize
from engine.fake_listening import Heard
from gateway.events import (
    AudioFrame,
    AudioIn,
    Interrupted,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    SegmentDecided,
    SegmentDone,
    StartSession,
    Tool,
    ToolCalled,
    ToolResult,
    Transcribed,
    TurnDone,
    TurnStarted,
)
from gateway.events import (
    Heard as HeardFrame,
)
from gateway.turn.asking import DRAFT_PRIORITY
from gateway.turn_state import State
from tests.session.microphone import Microphone, talking
from tests.session.stage import Stage
from tests.session.test_barge_in import LONG, after_interrupt

SETTINGS = {"hearing": {"partial_ms": 300, "merge_ms": 0}, "speculation": {"enabled": False}}
LOOKS = Script(tokens=tokenize("Let me look."), tool_calls=(ToolCall(call_id="c", name="look", arguments="{}"),))
SLOW = Script(tokens=tokenize("Yes. " + LONG), itl_ms=700)  # the second sentence comes long after the first one was heard


async def thinking(scene: Stage) -> None:
    await scene.until(TurnStarted)
    await asyncio.sleep(0.5)
    assert scene.session.state is State.THINKING


async def before_the_first_sound(scene: Stage) -> None:
    await scene.until(SegmentDecided)
    await asyncio.sleep(0.3)
    assert not scene.of(AudioFrame)


async def amid_a_segment(scene: Stage) -> None:
    await scene.until(AudioFrame, n=8)
    assert not scene.of(SegmentDone)


async def between_segments(scene: Stage) -> None:
    await scene.until(SegmentDone)
    await asyncio.sleep(1.0)  # it was heard, and nothing follows
    assert len(scene.of(SegmentDecided)) == 1


async def awaiting_a_tool(scene: Stage) -> None:
    await scene.until(ToolCalled)
    await scene.until(AudioFrame)
    await asyncio.sleep(0.2)
    assert scene.session.state is State.AWAITING_TOOL


async def playing_out(scene: Stage) -> None:
    await scene.until(ReplyDone)
    assert scene.session.state is State.PLAYING_OUT


Reach = Callable[[Stage], Awaitable[None]]
STATES: tuple[Reach, ...] = (thinking, before_the_first_sound, amid_a_segment, between_segments, awaiting_a_tool, playing_out)


def said(scene: Stage) -> list[str]:
    """By the user, not by a tool."""
    return [item.text for item in scene.session.history if item.role == "user" and item.text != "a whale"]


@asynccontextmanager
async def in_state(reach: Reach, second: Heard | str) -> AsyncIterator[tuple[Stage, Microphone]]:
    """A turn in this state; what is said next is heard as `second`."""
    replies: dict[Reach, Script | str] = {
        awaiting_a_tool: LOOKS,
        between_segments: SLOW,
        playing_out: "One two three four five six. " * 4,
    }
    reply = replies.get(reach, LONG)
    model = ScriptedModel([reply, "Fine."], ttft_ms=3000 if reach is thinking else 50)
    voice = ScriptedVoice(first_chunk_ms=3000 if reach is before_the_first_sound else 60)
    settings = {**SETTINGS, "session": {"lead_ms": 8000}} if reach is playing_out else SETTINGS
    start = StartSession(audio_in=AudioIn(), tools=(Tool(name="look"),))
    async with talking(("Tell me.", second), model=model, voice=voice, settings=settings, start=start) as (scene, microphone):
        await microphone.say(800)
        await reach(scene)
        yield scene, microphone


@pytest.mark.parametrize("reach", STATES)
async def test_words_stop_a_turn_in_any_state_and_are_answered(reach: Reach) -> None:
    async with in_state(reach, "No, stop that please.") as (scene, microphone):
        await microphone.say(1000)
        await scene.until(TurnDone, 2)
        was_heard = reach not in (thinking, before_the_first_sound)  # else the speaker only went on
        assert (await scene.until(TurnDone, 1)).status == ("interrupted" if was_heard else "superseded")
        assert [type(event) for event in after_interrupt(scene, 1)] == [HeardFrame, TurnDone]
        assert scene.of(TurnDone, 2)[0].status == "completed"
        assert said(scene) == (["Tell me.", "No, stop that please."] if was_heard else ["Tell me. No, stop that please."])
        await asyncio.sleep(1)
        assert scene.model.n_open == scene.voice.n_open == 0


@pytest.mark.parametrize("text", ["", " ", "..."])
@pytest.mark.parametrize("reach", STATES)
async def test_nothing_understood_starts_nothing_and_lets_a_turn_go_on_in_any_state(reach: Reach, text: str) -> None:
    async with in_state(reach, text) as (scene, microphone):
        await microphone.say(300)
        await scene.until(PlayoutResumed)
        for call in scene.of(ToolCalled):
            scene.send(ToolResult(call_id=call.call_id, output="a whale"))
        assert (await scene.until(TurnDone, 1)).status == "completed"
        await asyncio.sleep(3)
        assert not scene.of(Interrupted)
        assert len(scene.of(TurnStarted)) == 1
        assert len(scene.of(PlayoutPaused)) == len(scene.of(PlayoutResumed)) == 1
        assert scene.session.state is State.LISTENING
        assert said(scene) == ["Tell me."]
        assert scene.audio_ms(1) == pytest.approx(sum(done.audio_ms for done in scene.of(SegmentDone, 1)), abs=10)


async def test_a_draft_of_words_that_turn_out_to_be_none_is_dropped() -> None:
    noise = Heard(text="", partials=((0, "What is it?"),))
    settings = {"hearing": {"partial_ms": 200}}
    async with talking((noise,), scores=(0.4,), settings=settings, final_ms=300) as (scene, microphone):
        await microphone.say(1150)  # the last partial text holds all of it
        await asyncio.sleep(0.2)
        assert scene.model.requests[-1].priority == DRAFT_PRIORITY
        await asyncio.sleep(3)
        assert scene.session.state is State.LISTENING
        assert not scene.of(TurnStarted)
        assert [event.turn for event in scene.of(Transcribed) if event.final] == [None]
        assert scene.model.n_open == 0


@pytest.mark.parametrize(("ttft_ms", "first_chunk_ms", "merges"), [(2000, 60, True), (50, 2000, True), (50, 60, False)])
async def test_three_times_in_a_row_each_is_clean(ttft_ms: float, first_chunk_ms: float, merges: bool) -> None:
    heard = ("Tell me.", "No, the second.", "No, the third.", "No, the fourth one.")
    model, voice = ScriptedModel([LONG, LONG, LONG, "Fine."], ttft_ms=ttft_ms), ScriptedVoice(first_chunk_ms=first_chunk_ms)
    async with talking(heard, model=model, voice=voice, settings=SETTINGS) as (scene, microphone):
        for turn in (1, 2, 3):
            await microphone.say(900)
            await scene.until(TurnStarted, turn)
            await asyncio.sleep(1.0)
        await microphone.say(900)
        await scene.until(TurnDone, 4)
        statuses = [(await scene.until(TurnDone, turn)).status for turn in (1, 2, 3, 4)]
        assert statuses == ["superseded" if merges else "interrupted"] * 3 + ["completed"]
        for turn in (1, 2, 3):
            assert [type(event) for event in after_interrupt(scene, turn)] == [HeardFrame, TurnDone]
        assert said(scene) == ([" ".join(heard)] if merges else list(heard))
