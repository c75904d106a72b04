"""Spoken turns: answered in time, drafted before the end is sure, merged when the speaker goes on; nothing answered that is nothing."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from engine.api import EngineError, EngineNotReady, ToolCall
from engine.fake import Fault, Script, ScriptedModel, tokenize
from engine.fake_listening import Heard, ScriptedRecognizer
from gateway.auth import Rights
from gateway.errors import TooManyReplies, TurnActive
from gateway.events import (
    AppendAudio,
    AudioFrame,
    AudioIn,
    Cancel,
    ClearInput,
    CommitInput,
    ErrorRaised,
    Interrupted,
    Mute,
    PlayoutPaused,
    RequestReply,
    SegmentDecided,
    SendText,
    SessionUpdated,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    Tool,
    ToolCalled,
    Transcribed,
    TurnDone,
    TurnStarted,
    UpdateSession,
)
from gateway.session.listening import MOST_PUT_OFF
from gateway.turn.asking import DRAFT_PRIORITY
from gateway.turn_state import State
from tests.session.microphone import SOUND, talking
from tests.session.stage import Stage, stage

LISTENS = StartSession(audio_in=AudioIn())
SPOKEN = {"speculation": {"enabled": False}}


def outcome(scene: Stage, name: str) -> float:
    return float(scene.parts.metrics.listening.speculation.labels(name)._value.get())


def said(scene: Stage) -> list[tuple[str, str]]:
    return [(item.role, item.text) for item in scene.session.history]


@pytest.mark.parametrize("settings", [{}, SPOKEN])
async def test_a_spoken_question_is_answered(settings: dict[str, object]) -> None:
    async with talking(settings=settings) as (scene, microphone):
        await microphone.say(1200)
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        kinds = [type(event) for _, _, event in scene.frames]
        order = [kinds.index(kind) for kind in (SpeechStarted, SpeechEnded, TurnStarted, SegmentDecided, AudioFrame, TurnDone)]
        assert order == sorted(order)
        final = next(event for event in scene.of(Transcribed) if event.final)
        assert (final.text, final.turn) == ("What is down there?", 1)
        assert [role for role, _ in said(scene)] == ["user", "assistant"]


async def test_replies_that_are_asked_for_while_a_text_is_read_do_not_pile_up() -> None:
    async with talking((Heard(text="What is down there?", final_ms=3000),), settings=SPOKEN) as (scene, microphone):
        scene.send(UpdateSession(auto_reply=False, turn_detection="push_to_talk"))
        await microphone.say(1200)
        scene.send(CommitInput())
        for number in range(40):
            scene.send(RequestReply(id=f"r{number}"))
        await asyncio.sleep(0.5)
        refused = [error.ref for error in scene.of(ErrorRaised)]
        assert refused == [f"r{number}" for number in range(MOST_PUT_OFF, 40)]
        await scene.until(TurnDone)
        assert [started.ref for started in scene.of(TurnStarted)] == ["r0"]
        codes = [error.code for error in scene.of(ErrorRaised)]
        assert codes == [TooManyReplies.code] * (40 - MOST_PUT_OFF) + [TurnActive.code] * (MOST_PUT_OFF - 1)


async def test_latency_counts_from_the_end_of_speech() -> None:
    async with talking(settings=SPOKEN) as (scene, microphone):
        await microphone.say(1200)
        await scene.until(AudioFrame)
        waited_s = scene.when(AudioFrame) - microphone.stopped_s
        done = await scene.until(TurnDone)
        assert done.timeline.first_audio_ms == pytest.approx(waited_s * 1000, abs=40)
        assert scene.parts.metrics.ttfa.labels("speech")._sum.get() == pytest.approx(waited_s, abs=0.04)


async def test_a_draft_hides_the_wait_for_the_end() -> None:
    waits = []
    for settings in ({}, SPOKEN):
        async with talking(("What is down there",), scores=(0.4,), settings=settings) as (scene, microphone):
            await microphone.say(1200)
            await scene.until(AudioFrame)
            waits.append(scene.when(AudioFrame) - microphone.stopped_s)
    assert waits[0] == pytest.approx(0.8, abs=0.06), "the first segment was ready and left with the commit"
    assert waits[1] - waits[0] > 0.1


async def test_nothing_of_a_draft_leaves_before_its_commit_and_it_runs_behind_real_replies() -> None:
    async with talking(("What is down there",), scores=(0.4,)) as (scene, microphone):
        await microphone.say(1200)
        await asyncio.sleep(0.6)
        assert scene.session.state is State.DRAFTING
        assert not scene.of(SegmentDecided)
        assert not scene.of(TurnStarted)
        assert len(scene.session.history) == 0
        assert scene.model.requests[-1].priority == DRAFT_PRIORITY
        await scene.until(TurnDone)
        assert outcome(scene, "committed") == 1
        assert scene.of(TurnStarted)[0].turn == 1


async def test_a_draft_of_half_a_sentence_is_dropped_when_the_speaker_goes_on() -> None:
    heard, replies = ("Book a table", "Book a table for two."), ("One two three four five six. " * 9, "Done.")
    settings = {"hearing": {"partial_ms": 2000}}
    async with talking(heard, replies, scores=(0.3, 0.95), settings=settings) as (scene, microphone):
        await microphone.say(800)
        await asyncio.sleep(0.5)
        assert scene.session.state is State.DRAFTING
        await microphone.say(800)
        done = await scene.until(TurnDone)
        assert (done.turn, done.status) == (1, "completed")
        assert outcome(scene, "resumed") == 1
        assert scene.parts.metrics.listening.speculation_wasted._value.get() > 0
        assert said(scene)[0] == ("user", "Book a table for two.")
        assert len(scene.model.cancelled) == 1
        assert len(scene.of(TurnStarted)) == 1


async def test_a_draft_of_another_text_is_replaced() -> None:
    recognizer = ScriptedRecognizer(
        [Heard(text="What is down there in the sea?", partials=((0, "What is"), (1000, "What was down there")))]
    )
    async with talking(recognizer=recognizer, scores=(0.4,), settings={"hearing": {"partial_ms": 400}}) as (scene, microphone):
        await microphone.say(1300)
        await scene.until(TurnDone)
        assert said(scene)[0] == ("user", "What is down there in the sea?")
        assert outcome(scene, "changed") == 1
        assert outcome(scene, "committed") == 1


async def test_a_draft_without_headroom_is_not_begun() -> None:
    async with talking(settings={"speculation": {"max_replies": 1, "max_drafts": 1}}) as (scene, microphone):
        scene.parts.headroom.n_replies = 1
        await microphone.say(1200)
        await scene.until(TurnDone)
        assert outcome(scene, "no_headroom") >= 1
        assert outcome(scene, "committed") == 0


async def test_the_tool_of_a_draft_waits_for_its_commit_and_that_of_a_dropped_one_never_runs() -> None:
    calls = Script(tokens=(), tool_calls=(ToolCall(call_id="c", name="hang_up", arguments="{}"),))
    model = ScriptedModel([calls, "All right."])
    start = StartSession(audio_in=AudioIn(), tools=(Tool(name="hang_up"),))
    heard = ("Well I think", "Well I think we go on.")
    settings = {"hearing": {"partial_ms": 2000}}
    async with talking(heard, model=model, scores=(0.3, 0.95), start=start, settings=settings) as (scene, microphone):
        await microphone.say(800)
        await asyncio.sleep(0.5)
        assert scene.session.state is State.DRAFTING
        await microphone.say(800)
        await scene.until(TurnDone)
        assert not scene.of(ToolCalled)
        assert said(scene)[-1] == ("assistant", "All right.")


async def test_the_tool_of_a_committed_draft_runs() -> None:
    calls = Script(tokens=(), tool_calls=(ToolCall(call_id="c", name="look", arguments="{}"),))
    start = StartSession(audio_in=AudioIn(), tools=(Tool(name="look"),))
    async with talking(("What is there",), model=ScriptedModel([calls, "Fish."]), scores=(0.4,), start=start) as (scene, microphone):
        await microphone.say(1200)
        called = await scene.until(ToolCalled)
        assert (called.turn, called.call_id) == (1, "c")
        assert scene.time() - microphone.stopped_s == pytest.approx(0.8, abs=0.06)


async def test_a_draft_that_fails_is_not_missed() -> None:
    broken = Script(tokens=tokenize("One two."), fault=Fault(at=1, error=EngineError))
    async with talking(("What is it",), model=ScriptedModel([broken, "Fine."]), scores=(0.4,)) as (scene, microphone):
        await microphone.say(1200)
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert not scene.of(ErrorRaised)
        assert outcome(scene, "failed") == 1
        assert said(scene) == [("user", "What is it"), ("assistant", "Fine.")]


async def test_text_while_a_draft_is_held_is_answered_instead() -> None:
    async with talking(("What is it",), scores=(0.4,)) as (scene, microphone):
        await microphone.say(1200)
        await asyncio.sleep(0.5)
        scene.send(SendText(text="Forget it."))
        await scene.until(TurnDone, 1)
        assert outcome(scene, "cancelled") == 1
        assert said(scene)[0] == ("user", "Forget it.")


async def test_a_speaker_who_goes_on_after_the_commit_is_answered_once_and_whole() -> None:
    heard = ("I would like to know", "what is down there.")
    model = ScriptedModel(["Well, one two three four five six seven.", "A fish."], ttft_ms=400)
    async with talking(heard, model=model, scores=(0.95,)) as (scene, microphone):
        await microphone.say(1000)
        await scene.until(TurnStarted)
        await asyncio.sleep(0.1)
        await microphone.say(1000)
        await scene.until(TurnDone, 2)
        await scene.until(TurnDone, 1)
        assert scene.of(TurnDone, 1)[0].status == "superseded"
        assert scene.of(TurnDone, 2)[0].status == "completed"
        assert said(scene) == [("user", "I would like to know what is down there."), ("assistant", "A fish.")]


async def test_frames_that_left_are_superseded_within_the_bound_and_interrupted_after_it() -> None:
    long = " ".join(["This is a sentence of some length."] * 8)
    for merge_ms, status in ((3000, "superseded"), (200, "interrupted")):
        settings = {"hearing": {"merge_ms": merge_ms}, "barge_in": {"echo_guard": False}}
        async with talking(("I want", "a big fish please."), (long, "Here."), settings=settings) as (scene, microphone):
            await microphone.say(800)
            await scene.until(AudioFrame, n=5)
            await asyncio.sleep(0.5)
            await microphone.say(900)
            await scene.until(TurnDone, 2)
            await scene.until(TurnDone, 1)
            assert scene.of(TurnDone, 1)[0].status == status
            n_user = sum(role == "user" for role, _ in said(scene))
            assert n_user == (1 if status == "superseded" else 2)


async def test_noise_and_empty_texts_are_not_answered() -> None:
    async with talking(("", " ")) as (scene, microphone):
        await microphone.say(60)
        await asyncio.sleep(1)
        await microphone.say(1000)
        await asyncio.sleep(2)
        assert not scene.of(TurnStarted)
        assert len(scene.session.history) == 0
        assert scene.session.state is State.LISTENING
        assert [event.text for event in scene.of(Transcribed) if event.final] == [""]


async def test_a_recognizer_that_fails_is_told_and_the_next_utterance_heard() -> None:
    heard = (Heard(text="", errors=(EngineNotReady,) * 100), "Are you there?")
    settings = {"hearing": {"final_s": 2.0}}
    async with talking(heard, settings=settings) as (scene, microphone):
        await microphone.say(1000)
        error = await scene.until(ErrorRaised)
        assert (error.code, error.retryable) == ("asr_failed", True)
        await microphone.say(1000)
        await scene.until(TurnDone)


async def test_a_part_of_a_long_speech_that_stays_unread_is_told_and_the_rest_answered() -> None:
    heard = ("First", Heard(text="", errors=(EngineNotReady,) * 999), "third.")
    async with talking(heard, scores=(0.3,), settings={"hearing": {"final_s": 2.0}, **SPOKEN}) as (scene, microphone):
        for _ in range(3):
            await microphone.say(8000)
            await asyncio.sleep(0.5)
        assert (await scene.until(TurnDone)).status == "completed"
        assert said(scene)[0] == ("user", "First third.")
        assert [(error.code, error.retryable) for error in scene.of(ErrorRaised)] == [("asr_failed", True)]


async def test_push_to_talk_answers_at_the_commit() -> None:
    start = StartSession(audio_in=AudioIn(), turn_detection="push_to_talk")
    async with talking(start=start) as (scene, microphone):
        await asyncio.sleep(3)
        assert not scene.of(TurnStarted)
        scene.send(CommitInput(id="c"))
        assert (await scene.until(TurnDone)).status == "completed"
        assert scene.of(Transcribed)[-1].final
        assert microphone.pts_ms > 3000


async def test_a_client_may_change_between_the_button_and_hands_free() -> None:
    async with talking(("Thrown away.", "One.", "Two.")) as (scene, microphone):
        microphone.is_speaking = True
        await asyncio.sleep(0.5)
        scene.send(UpdateSession(id="u", turn_detection="push_to_talk"))
        assert (await scene.until(SessionUpdated)).turn_detection == "push_to_talk"
        await asyncio.sleep(1)
        microphone.is_speaking = False
        await asyncio.sleep(3)
        assert not scene.of(TurnStarted)
        scene.send(CommitInput(id="c"))
        await scene.until(TurnDone)
        scene.send(UpdateSession(turn_detection="auto"))
        await asyncio.sleep(2)
        began_ms = microphone.pts_ms
        await microphone.say(1000)
        await scene.until(TurnDone, n=2)
        assert scene.of(SpeechStarted)[-1].at_ms == pytest.approx(began_ms, abs=100), "the detector's clock is the stream's"


async def test_an_empty_commit_and_clear_are_answered() -> None:
    async with talking() as (scene, microphone):
        scene.send(CommitInput(id="c"))
        error = await scene.until(ErrorRaised)
        assert (error.code, error.ref) == ("input_empty", "c")
        await microphone.say(500)
        scene.send(ClearInput(id="d"))
        await asyncio.sleep(2)
        assert not scene.of(TurnStarted)


async def test_mute_ends_the_utterance_and_hears_nothing() -> None:
    async with talking() as (scene, microphone):
        microphone.is_speaking = True
        await asyncio.sleep(1)
        scene.send(Mute(on=True))
        await scene.until(TurnDone)
        assert len(scene.of(TurnStarted)) == 1


async def test_without_ears_audio_is_not_available() -> None:
    async with stage() as scene:
        scene.send(AppendAudio(id="a", data=SOUND))
        scene.send(CommitInput(id="b"))
        await asyncio.sleep(0.01)
        assert [(e.code, e.ref) for e in scene.of(ErrorRaised)] == [("not_available", "a"), ("not_available", "b")]
        assert scene.ready.audio_in is None


async def test_a_cold_prompt_is_warmed_when_its_speaker_begins() -> None:
    async with talking(settings=SPOKEN) as (scene, microphone):
        await microphone.say(1000)
        await scene.until(TurnDone)
        assert [request.priority for request in scene.model.requests] == [20, 0]
        await microphone.say(1000)
        await scene.until(TurnDone, n=2)
        assert [request.priority for request in scene.model.requests] == [20, 0, 0], "the second prompt was warm"


async def test_drafts_and_warm_ups_of_an_isolated_key_stay_in_its_cache() -> None:
    async with talking() as (scene, microphone):
        scene.session.profile = structs.replace(scene.session.profile, rights=Rights(cache_salt="own"))
        await microphone.say(1000)
        await scene.until(TurnDone)
        assert {request.priority for request in scene.model.requests} == {20, DRAFT_PRIORITY}
        assert {request.cache_salt for request in scene.model.requests} == {"own"}


async def test_one_hour_of_silence_asks_nothing_and_leaks_nothing() -> None:
    async with talking() as (scene, _):
        await asyncio.sleep(60)
        assert scene.frames == []
        assert not scene.model.requests


async def test_a_reply_that_may_not_be_interrupted_is_not() -> None:
    start = StartSession(audio_in=AudioIn(), allow_barge_in=False)
    async with talking(("Hello.", "Stop!"), start=start) as (scene, microphone):
        await microphone.say(1000)
        await scene.until(AudioFrame)
        await microphone.say(1000)
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert not scene.of(Interrupted)
        assert not scene.of(PlayoutPaused)
        assert len(scene.of(SpeechStarted)) == 1


async def test_a_session_that_ends_while_an_interrupted_turn_settles_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(("Tell me.", "Stop it now."), ("One two three four five six. " * 20,)) as (scene, microphone):
        await microphone.say(800)
        await scene.until(AudioFrame, n=30)
        scene.send(Cancel())
        await asyncio.sleep(0.1)
        scene.session.close()
        await asyncio.sleep(5)
        assert scene.session.session_id not in scene.sessions.ids()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
