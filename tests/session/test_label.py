"""Generated speech that says so: to people in front of the first spoken reply, to machines with every segment; where that is wanted."""

from __future__ import annotations

import asyncio

import pytest

from gateway.events import (
    AudioFrame,
    RequestReply,
    Say,
    SegmentAudio,
    SegmentDecided,
    SendText,
    StartSession,
    TextDelta,
    TurnDone,
)
from tests.session.microphone import talking
from tests.session.stage import Stage, stage

NOTICE = {"label": {"notice": {"en": "You are talking to an AI.", "zh": "这是人工智能。"}}}


def texts(scene: Stage, turn: int) -> list[str]:
    return [event.text.strip() for event in scene.of(SegmentDecided, turn)]


async def test_the_first_spoken_reply_begins_with_the_notice_and_no_other_does() -> None:
    async with stage(("Yes.", "No."), settings=NOTICE) as scene:
        for turn in (1, 2):
            scene.send(SendText(text="Hello."))
            await scene.until(TurnDone, turn)
        assert texts(scene, 1) == ["You are talking to an AI.", "Yes."]
        assert texts(scene, 2) == ["No."]
        assert "".join(event.text for event in scene.of(TextDelta, 1)).startswith("You are talking to an AI.")
        assert scene.of(AudioFrame, 1)[0].index == 0
        assert "talking to an AI" in [item.text for item in scene.session.history][1], "the model may know that it was said"


async def test_the_notice_does_not_count_as_the_models_first_token() -> None:
    async with stage(("Yes.",), settings=NOTICE) as scene:
        scene.send(SendText(text="Hello."))
        done = await scene.until(TurnDone)
        assert done.timeline.ttft_ms is not None
        assert done.timeline.ttft_ms >= 50
        assert done.timeline.first_segment_ms is not None
        assert done.timeline.first_segment_ms < done.timeline.ttft_ms


@pytest.mark.parametrize(
    ("language", "notice"), [("en-GB", "You are talking to an AI."), ("zh", "这是人工智能。"), ("fr", "You are talking to an AI.")]
)
async def test_it_is_said_in_the_sessions_language_or_the_first_there_is(language: str, notice: str) -> None:
    async with stage(("Yes.",), settings=NOTICE, start=StartSession(language=language)) as scene:
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone)
        assert texts(scene, 1)[0] == notice


async def test_words_that_a_client_lets_say_have_it_too_and_text_alone_and_out_of_band_replies_do_not() -> None:
    async with stage(("Yes.",), settings=NOTICE) as scene:
        scene.send(RequestReply(conversation="none"))
        await scene.until(TurnDone, 1)
        scene.send(RequestReply(output="text"))
        await scene.until(TurnDone, 2)
        scene.send(Say(text="Welcome."))
        await scene.until(TurnDone, 3)
        assert (texts(scene, 1), texts(scene, 2)) == (["Yes."], ["Yes."])
        assert texts(scene, 3) == ["You are talking to an AI.", "Welcome."]


async def test_a_reply_that_was_stopped_before_it_sounded_has_not_told_anybody() -> None:
    async with stage(("Yes.",), settings=NOTICE) as scene:
        scene.send(SendText(text="Hello."))
        await asyncio.sleep(0.01)
        scene.send(SendText(text="Wait."))
        await scene.until(TurnDone, 2)
        assert texts(scene, 2) == ["You are talking to an AI.", "Yes."]


async def test_a_spoken_question_has_it_too() -> None:
    async with talking(replies=("Yes.",), settings=NOTICE) as (scene, microphone):
        await microphone.say(1200)
        await scene.until(TurnDone, 1)
        assert texts(scene, 1) == ["You are talking to an AI.", "Yes."]


@pytest.mark.parametrize("marker", [True, False])
async def test_each_segments_sound_is_marked_where_that_is_wanted(marker: bool) -> None:
    async with stage(("One two. Three four.",), settings={"label": {"marker": marker}}) as scene:
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone)
        assert [event.generated for event in scene.of(SegmentAudio)] == [True if marker else None] * 2
