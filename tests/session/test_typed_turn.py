"""A typed turn from the commit to the last sample heard."""

from __future__ import annotations

import asyncio

import pytest

from engine.fake import Script, ScriptedVoice, tokenize
from gateway.auth import FULL_RIGHTS, Rights
from gateway.events import (
    Ack,
    AudioFrame,
    ErrorRaised,
    ReplyDone,
    Say,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    SendText,
    StartSession,
    TextDelta,
    TurnDone,
    TurnStarted,
)
from tests.session.stage import stage

REPLY = "One two three four five. Six seven eight nine ten."


async def test_a_turn_tells_each_stage_in_order() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(id="a", text="Count, please."))
        done = await scene.until(TurnDone)
        kinds = [type(event) for _, _, event in scene.frames]
        assert kinds[0] is TurnStarted
        first = {
            kind: kinds.index(kind) for kind in (TextDelta, SegmentDecided, SegmentAudio, AudioFrame, SegmentDone, ReplyDone, TurnDone)
        }
        assert list(first.values()) == sorted(first.values())
        assert [seq for _, seq, _ in scene.frames] == list(range(1, len(scene.frames) + 1))
        assert done.status == "completed"
        assert done.timeline.ttft_ms == pytest.approx(50, abs=1)


async def test_captions_segments_and_reply_are_the_same_text() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        assert "".join(delta.text for delta in scene.of(TextDelta)) == REPLY
        assert "".join(segment.text for segment in scene.of(SegmentDecided)) == REPLY
        assert sum(delta.tokens for delta in scene.of(TextDelta)) == len(tokenize(REPLY))


async def test_a_segment_leaves_before_its_audio_exists() -> None:
    async with stage([REPLY], voice=ScriptedVoice(first_chunk_ms=200)) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        assert scene.when(SegmentAudio) - scene.when(SegmentDecided) == pytest.approx(0.2, abs=0.01)


async def test_the_next_segment_is_made_while_this_one_plays() -> None:
    async with stage([REPLY], voice=ScriptedVoice(first_chunk_ms=400, rtf=0.5)) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        frames = scene.of(AudioFrame)
        second = next(frame for frame in frames if frame.index == 1)
        sent_at = next(at for at, _, event in scene.frames if event is second)
        played_ms = (sent_at - scene.when(AudioFrame)) * 1000
        assert played_ms < second.pts_ms, "the second segment's first frame arrived before the first one had played out"


async def test_frames_are_20_ms_then_100_ms_and_their_pts_tile_the_turn() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        expected_pts = 0.0
        for index in (0, 1):
            lengths = [len(frame.data) / 48 for frame in scene.of(AudioFrame) if frame.index == index]
            assert lengths[0] == 20
            assert set(lengths[1:-1]) <= {100}
            assert 0 < lengths[-1] <= 100
        for frame in scene.of(AudioFrame):
            assert frame.pts_ms == pytest.approx(expected_pts, abs=0.01)
            expected_pts += len(frame.data) / 48
        assert [done.audio_ms for done in scene.of(SegmentDone)] == [
            round(sum(len(f.data) / 48 for f in scene.of(AudioFrame) if f.index == i)) for i in (0, 1)
        ]


async def test_no_more_audio_is_sent_ahead_than_the_lead() -> None:
    long = " ".join(["Word after word goes by in this sentence."] * 8)
    async with stage([long], settings={"session": {"lead_ms": 500}}) as scene:
        scene.send(SendText(text="Go on."))
        await scene.until(TurnDone)
        start = scene.when(AudioFrame)
        sent_ms = 0.0
        for at, _, event in scene.frames:
            if isinstance(event, AudioFrame):
                sent_ms += len(event.data) / 48
                assert sent_ms - (at - start) * 1000 <= 500 + 100 + 1
        assert sent_ms > 5000


async def test_a_turn_is_done_when_it_has_played_out() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        played_out_at = scene.when(AudioFrame) + scene.audio_ms(1) / 1000
        assert scene.when(ReplyDone) < scene.when(TurnDone)
        assert scene.when(TurnDone) == pytest.approx(played_out_at, abs=0.02)


async def test_text_output_has_no_audio_and_ends_with_the_reply() -> None:
    async with stage([REPLY], start=StartSession(output="text")) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        assert not scene.of(AudioFrame)
        assert not scene.of(SegmentDone)
        assert scene.when(TurnDone) == scene.when(ReplyDone)
        assert len(scene.of(SegmentDecided)) == 2


async def test_say_speaks_the_text_and_enters_history_with_zero_usage() -> None:
    async with stage() as scene:
        scene.send(Say(id="s", text="Welcome back. How are you?"))
        done = await scene.until(ReplyDone)
        assert (done.usage.prompt_tokens, done.usage.output_tokens) == (0, 0)
        assert scene.of(TurnStarted)[0].ref == "s"
        assert [item.text for item in scene.session.history] == ["Welcome back. How are you?"]
        assert not scene.model.requests


async def test_a_long_text_to_say_leaves_the_loop_to_others() -> None:
    text = "The sea was calm that day, and nobody thought of the storm. " * 400
    n_had = 0

    async def others() -> None:
        nonlocal n_had
        while not scene.of(ReplyDone):
            n_had += 1
            await asyncio.sleep(0 if n_had < 1000 else 1)

    async with stage(start=StartSession(output="text")) as scene, asyncio.TaskGroup() as tasks:
        scene.send(Say(text=text))
        tasks.create_task(others(), name="others")
        await scene.until(ReplyDone)
        assert n_had > len(text) / 200, "turns on the loop while it is made ready to be spoken"
        assert "".join(segment.text for segment in scene.of(SegmentDecided)) == text
        assert [item.text for item in scene.session.history] == [text]


async def test_chinese_without_a_chinese_voice_is_captioned_and_told() -> None:
    async with stage(["你好。今天很好。"], voice=ScriptedVoice(reads_han=False), start=StartSession(language="zh")) as scene:
        scene.send(SendText(text="你好"))
        await scene.until(TurnDone)
        assert [segment.text for segment in scene.of(SegmentDecided)] == ["你好。", "今天很好。"]
        assert [done.status for done in scene.of(SegmentDone)] == ["no_voice", "no_voice"]
        assert not scene.of(AudioFrame)


async def test_every_message_with_an_id_is_answered_once_and_never_done_twice() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(id="a", text="Count."))
        scene.send(SendText(id="a", text="Count."))
        await scene.until(TurnDone)
        answers = [event for _, _, event in scene.frames if event.ref == "a"]
        assert [type(answer) for answer in answers] == [TurnStarted, Ack]
        assert isinstance(answers[1], Ack)
        assert answers[1].repeated is True
        assert len(scene.of(TurnStarted)) == 1


async def test_a_model_that_says_nothing_fails_the_turn() -> None:
    async with stage([Script(tokens=())]) as scene:
        scene.send(SendText(text="Say something."))
        done = await scene.until(TurnDone)
        assert done.status == "failed"
        assert scene.of(ErrorRaised)[0].code == "engine_failed"
        assert scene.of(ErrorRaised)[0].turn == 1


async def test_emotion_marks_are_asked_for_and_leave_with_the_segment_not_in_it() -> None:
    async with stage(["[happy] Good to see you. [sad] I must go."], start=StartSession(emotion=True)) as scene:
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone)
        assert [segment.emotion for segment in scene.of(SegmentDecided)] == ["happy", "sad"]
        assert "[" not in "".join(segment.text for segment in scene.of(SegmentDecided))
        assert "[happy]" in scene.model.requests[0].prompt.messages[0].text
        assert [synthesis.style.emotion for synthesis in scene.voice.requests] == ["happy", "sad"]


async def test_an_isolated_keys_prompts_hit_only_their_own_prefix_cache() -> None:
    start = StartSession(output="text", instructions="You are a patient guide to the life of the sea. " * 8)
    tenants = [Rights(cache_salt="a"), Rights(cache_salt="b"), Rights(cache_salt="a"), FULL_RIGHTS, FULL_RIGHTS]
    async with stage() as scene:
        for rights in tenants:
            session, _, _ = await scene.sessions.open(start, rights)
            session.receive(SendText(text="What is down there?"))
            await asyncio.sleep(5)
        assert [request.cache_salt for request in scene.model.requests] == ["a", "b", "a", None, None]
        hits = [usage.cached_tokens > 0 for usage in scene.model.usages]
        assert hits == [False, False, True, False, True]
