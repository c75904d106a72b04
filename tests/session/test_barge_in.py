"""Speech over a reply: paused at once, stopped by words, resumed after a cough or a backchannel; in every state of a turn."""

from __future__ import annotations

import asyncio
import random
import re

import pytest
from msgspec import Struct

from engine.api import ToolCall
from engine.fake import Script, ScriptedModel, ScriptedVoice
from engine.fake_listening import Heard
from gateway.events import (
    AudioFrame,
    AudioIn,
    Interrupted,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    SegmentDone,
    ServerEvent,
    StartSession,
    Tool,
    ToolCalled,
    ToolResult,
    TurnDone,
    TurnStarted,
)
from gateway.events import (
    Heard as HeardFrame,
)
from gateway.turn_state import State
from tests.session.microphone import talking
from tests.session.stage import Stage

LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))
QUICK = {"hearing": {"partial_ms": 300, "merge_ms": 0}}


def after_interrupt(scene: Stage, turn: int) -> list[ServerEvent]:
    events = [event for _, _, event in scene.frames if getattr(event, "turn", None) == turn]
    place = next(i for i, event in enumerate(events) if isinstance(event, Interrupted))
    return events[place + 1 :]


def barge_ins(scene: Stage, outcome: str) -> float:
    return float(scene.parts.metrics.listening.barge_ins.labels(outcome)._value.get())


async def test_speech_pauses_the_reply_at_once_and_words_stop_it() -> None:
    async with talking(("Tell me a lot.", "Stop it now please."), (LONG, "Fine."), settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        began_s = scene.time()
        await microphone.say(1200)
        assert scene.when(PlayoutPaused) - began_s <= 0.15
        assert scene.when(Interrupted) - began_s <= 1.0
        await scene.until(TurnDone, 2)
        await scene.until(TurnDone, 1)
        assert scene.of(Interrupted)[0].reason == "speech"
        assert [type(event) for event in after_interrupt(scene, 1)] == [HeardFrame, TurnDone]
        assert [item.role for item in scene.session.history] == ["user", "assistant", "user", "assistant"]
        assert not scene.of(PlayoutResumed)


async def test_after_an_interruption_the_cut_prompt_is_read_ahead_while_the_user_speaks() -> None:
    settings = {**QUICK, "turn": {"heard_wait_s": 0.5}, "speculation": {"enabled": False}}
    async with talking(("Tell me a lot.", "Stop it now please."), (LONG, "Fine."), settings=settings) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(3000)
        await scene.until(TurnDone, 2)
        assert [request.priority for request in scene.model.requests] == [20, 0, 20, 0], "warmed at both beginnings"
        cut = scene.model.requests[2].prompt.messages
        assert cut[-1].role == "assistant"
        assert cut[-1].text
        assert LONG.startswith(cut[-1].text)
        assert scene.model.requests[3].prompt.messages[: len(cut)] == cut, "the next turn's prompt begins with what was warmed"
        assert scene.parts.metrics.prompts.warm_ups.labels("conversation", "done")._value.get() == 2


@pytest.mark.parametrize("text", ["Mhm.", "uh-huh", "Right.", "嗯", "对。", ""])
async def test_a_backchannel_or_cough_pauses_and_the_reply_plays_on(text: str) -> None:
    async with talking(("Tell me a lot.", text), (LONG,), settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(300)
        await scene.until(PlayoutResumed, 1)
        done = await scene.until(TurnDone, 1)
        assert done.status == "completed"
        assert not scene.of(Interrupted)
        assert len(scene.of(TurnStarted)) == 1
        assert barge_ins(scene, "dismissed") == 1
        assert scene.audio_ms(1) == pytest.approx(sum(done.audio_ms for done in scene.of(SegmentDone, 1)), abs=10)


async def test_half_a_word_over_a_reply_is_soon_read_again() -> None:
    heard = ("Tell me.", Heard(text="Stop that please.", partials=((0, ""), (1000, "Stop"))))
    async with talking(heard, (LONG, "Fine."), settings={"hearing": {"merge_ms": 0}}) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        began_s = scene.time()
        await microphone.say(2000)
        await scene.until(Interrupted)
        assert scene.when(Interrupted) - began_s < 1.0, "and not another 700 ms later"


async def test_while_paused_the_clock_stands_still_and_no_sound_is_lost() -> None:
    async with talking(("Tell me a lot.", "mhm"), (LONG,), settings=QUICK, final_ms=1500) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(300)
        heard_ms = scene.session.floor.heard_ms() if scene.session.floor else 0
        await asyncio.sleep(1)
        assert scene.session.state is State.HELD
        assert scene.session.floor is not None
        assert scene.session.floor.heard_ms() == heard_ms
        assert (await scene.until(TurnDone, 1)).status == "completed"


async def test_the_same_backchannel_is_an_answer_when_nobody_speaks() -> None:
    async with talking(("Right.",)) as (scene, microphone):
        await microphone.say(500)
        assert (await scene.until(TurnDone)).status == "completed"


async def test_a_backchannel_that_goes_on_stops_the_reply() -> None:
    heard = ("Tell me.", Heard(text="Right, but what about whales?", partials=((0, ""), (500, "Right"), (900, "Right, but what"))))
    async with talking(heard, (LONG, "Whales."), settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=10)
        await microphone.say(1500)
        await scene.until(TurnDone, 2)
        assert (await scene.until(TurnDone, 1)).status == "interrupted"


async def test_noise_over_a_reply_pauses_it_shortly() -> None:
    async with talking(("Tell me a lot.",), (LONG,), settings={"endpointing": {"min_speech_ms": 200}}) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(100)
        await scene.until(PlayoutResumed)
        assert scene.when(PlayoutResumed) - scene.when(PlayoutPaused) < 0.3
        assert (await scene.until(TurnDone)).status == "completed"


async def test_a_hum_that_never_becomes_words_lets_the_reply_play_on() -> None:
    settings = {**QUICK, "barge_in": {"hold_s": 2.0}}
    async with talking(("Tell me a lot.", ""), (LONG,), settings=settings) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(5000)
        assert scene.when(PlayoutResumed) - scene.when(PlayoutPaused) == pytest.approx(2.0, abs=0.05)
        assert (await scene.until(TurnDone)).status == "completed"


async def test_our_own_voice_coming_back_stops_nothing() -> None:
    echo = "sentence number one of a rather long reply"
    async with talking(("Tell me a lot.", Heard(text=echo, partials=((0, echo),))), (LONG,), settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(1500)
        assert (await scene.until(TurnDone)).status == "completed"
        assert not scene.of(Interrupted)
        assert scene.of(PlayoutResumed)


async def test_a_client_that_hears_us_pauses_a_reply_once_and_words_still_stop_it() -> None:
    echo = Heard(text="sentence number one of a rather long reply", partials=((0, "sentence number one of"),))
    heard = ("Tell me a lot.", echo, echo, Heard(text="Stop it now.", partials=((0, "Stop it"),)), "Hello.")
    async with talking(heard, (LONG * 3, "Fine."), settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        for _ in range(2):
            await microphone.say(1000)
            await asyncio.sleep(1)
        assert len(scene.of(PlayoutPaused)) == len(scene.of(PlayoutResumed)) == 1
        await microphone.say(1000)
        assert (await scene.until(TurnDone, 1)).status == "interrupted"


async def test_barge_in_while_thinking_leaves_nothing_of_the_reply() -> None:
    model = ScriptedModel([LONG, "Fine."], ttft_ms=3000)
    async with talking(("Tell me a lot.", "No, something else."), model=model, settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(TurnStarted)
        await microphone.say(1000)
        await scene.until(Interrupted)
        await scene.until(TurnDone, 2)
        assert not scene.of(AudioFrame, 1)
        assert scene.of(PlayoutPaused), "nothing may begin to sound into an open mouth"
        assert model.n_open == 0


async def test_barge_in_before_the_first_audio() -> None:
    voice = ScriptedVoice(first_chunk_ms=3000)
    async with talking(("Tell me a lot.", "No, something else."), (LONG, "Fine."), voice=voice, settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        await scene.until(TurnStarted)
        await asyncio.sleep(0.5)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        assert not scene.of(AudioFrame, 1)
        assert scene.of(HeardFrame, 1)[0].heard_ms == 0 if scene.of(HeardFrame, 1) else True


async def test_barge_in_during_a_tool_call_drops_the_tool_and_its_late_result() -> None:
    calls = Script(tokens=("Let", " me", " look", "."), tool_calls=(ToolCall(call_id="c", name="look", arguments="{}"),))
    start = StartSession(audio_in=AudioIn(), tools=(Tool(name="look"),))
    heard = ("What is there?", "Never mind, stop.")
    async with talking(heard, model=ScriptedModel([calls, "Fine."]), start=start, settings=QUICK) as (scene, microphone):
        await microphone.say(800)
        call = await scene.until(ToolCalled)
        await scene.until(AudioFrame, 1)
        await asyncio.sleep(0.2)
        await microphone.say(1000)
        await scene.until(TurnDone, 2)
        scene.send(ToolResult(call_id=call.call_id, output="a whale"))
        await asyncio.sleep(0.1)
        assert scene.frames[-1][2].code == "unknown_call"  # type: ignore[attr-defined]  # an error frame, or the test fails here
        assert (await scene.until(TurnDone, 1)).status == "interrupted"


async def test_a_cough_during_a_tool_call_changes_nothing() -> None:
    calls = Script(tokens=("Let", " me", " look", "."), tool_calls=(ToolCall(call_id="c", name="look", arguments="{}"),))
    start = StartSession(audio_in=AudioIn(), tools=(Tool(name="look"),))
    async with talking(("What is there?", ""), model=ScriptedModel([calls, "A fish."]), start=start) as (scene, microphone):
        await microphone.say(800)
        call = await scene.until(ToolCalled)
        await microphone.say(300)
        await scene.until(PlayoutResumed)
        scene.send(ToolResult(call_id=call.call_id, output="a whale"))
        assert (await scene.until(TurnDone)).status == "completed"


async def test_barge_in_while_only_playing_out() -> None:
    settings = {"session": {"lead_ms": 8000}, **QUICK}
    async with talking(("Tell me.", "Stop that please."), ("One two three four five six. " * 4, "Fine."), settings=settings) as scene_mic:
        scene, microphone = scene_mic
        await microphone.say(800)
        await scene.until(ReplyDone, 1)
        await microphone.say(1000)
        await scene.until(TurnDone, 1)
        assert (await scene.until(TurnDone, 1)).status == "interrupted"
        assert scene.of(HeardFrame, 1)[0].heard_ms < scene.audio_ms(1)


async def test_a_cough_while_only_playing_out_lets_the_turn_end() -> None:
    settings = {"session": {"lead_ms": 8000}, **QUICK}
    async with talking(("Tell me.", ""), ("One two three four five six. " * 3,), settings=settings) as (scene, microphone):
        await microphone.say(800)
        await scene.until(ReplyDone, 1)
        await microphone.say(300)
        assert (await scene.until(TurnDone, 1)).status == "completed"
        assert scene.session.state is State.LISTENING


async def test_a_client_that_had_played_everything_when_it_was_paused_ends_the_turn() -> None:
    settings = {"session": {"lead_ms": 8000}, **QUICK}
    async with talking(("Tell me.", ""), ("One two three four.",), settings=settings, final_ms=2000) as (scene, microphone):
        await microphone.say(800)
        await scene.until(ReplyDone, 1)
        await microphone.say(300)
        scene.report(1, scene.audio_ms(1), final=True)
        assert (await scene.until(TurnDone, 1)).status == "completed"
        assert scene.session.state is State.LISTENING
        await asyncio.sleep(3)


async def test_three_barge_ins_in_a_row_leave_one_answer() -> None:
    heard = ("Tell me one.", "No tell me two.", "No tell me three.", "No tell me four.")
    async with talking(heard, (LONG, LONG, LONG, "Four it is."), settings=QUICK) as (scene, microphone):
        for turn in (1, 2, 3):
            await microphone.say(900)
            await scene.until(AudioFrame, turn, n=8)
        await microphone.say(900)
        await scene.until(TurnDone, 4)
        assert [(await scene.until(TurnDone, turn)).status for turn in (1, 2, 3, 4)] == ["interrupted"] * 3 + ["completed"]
        assert [item.text for item in scene.session.history if item.role == "user"] == list(heard)


async def test_while_detached_a_held_reply_stays_held() -> None:
    async with talking(("Tell me a lot.", "mhm"), (LONG,), settings=QUICK, final_ms=800) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=20)
        await microphone.say(300)
        assert scene.session.floor is not None
        scene.session.detach(scene.attachment)
        scene.session.attach()
        heard_ms = scene.session.floor.heard_ms()
        await asyncio.sleep(0.3)
        assert scene.session.floor.heard_ms() == heard_ms
        assert (await scene.until(TurnDone, 1)).status == "completed"


def words_spoken(text: str, heard_ms: float) -> int:
    """Whole words of a text that the scripted voice, at 60 ms a character, has spoken after so long."""
    return sum(match.end() * 60 <= heard_ms for match in re.finditer(r"\S+", text))


class Interruptions(Struct):
    """What was seen of some: frames of the old turn behind `interrupted` that are not its end, and how far off `heard` was in words."""

    n: int = 0
    stray_frames: int = 0
    words_off: int = 0


async def interrupt_at_random(seed: int, n_turns: int) -> Interruptions:
    """Speak over so many replies, each at any time of it; those that were heard to their end do not count."""
    chance, seen = random.Random(seed), Interruptions()
    heard = tuple(f"Tell me number {n} now please." for n in range(n_turns + 1))
    async with talking(heard, (LONG,), settings={**QUICK, "barge_in": {"echo_guard": False}}) as (scene, microphone):
        await microphone.say(800)
        for turn in range(1, n_turns + 1):
            await scene.until(TurnStarted, turn)
            await asyncio.sleep(chance.uniform(0, 6))
            floor = scene.session.floor
            await microphone.say(chance.uniform(700, 1500))
            if floor is None or floor.number != turn or floor.is_over:
                continue  # it had been heard to its end
            await scene.until(Interrupted, turn)
            scene.report(turn, chance.uniform(0, scene.audio_ms(turn)), final=True)
            await scene.until(TurnDone, turn)
            seen.n += 1
            seen.stray_frames += sum(not isinstance(event, (HeardFrame, TurnDone)) for event in after_interrupt(scene, turn))
            told = scene.of(HeardFrame, turn)[0]
            assert LONG.startswith(told.heard_text.strip())
            seen.words_off = max(seen.words_off, abs(len(told.heard_text.split()) - words_spoken(LONG, told.heard_ms)))
        await scene.until(TurnDone, n_turns + 1)
        await asyncio.sleep(1)
        assert scene.model.n_open == scene.voice.n_open == 0
    return seen


@pytest.mark.parametrize("seed", [1, 2])
async def test_interruptions_at_random_times_are_clean_and_truly_told(seed: int) -> None:
    """A thousand of them: `python -m tests.load.listening_bench --interruptions 1000`."""
    seen = await interrupt_at_random(seed, 40)
    assert seen.n >= 20
    assert (seen.stray_frames, seen.words_off <= 1) == (0, True)
