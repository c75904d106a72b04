"""Replies beside the conversation, and clients that keep their own clock: truncate, retrieve, cancel."""

from __future__ import annotations

import asyncio

import pytest

from gateway.events import (
    AddItem,
    AudioFrame,
    Cancel,
    DeleteItem,
    ErrorRaised,
    Heard,
    Interrupted,
    ItemAdded,
    ItemInfo,
    ItemRetrieved,
    ItemTruncated,
    ReplyDone,
    RequestReply,
    RetrieveItem,
    SegmentDone,
    SendText,
    StartSession,
    TextDelta,
    TruncateItem,
    TurnDone,
    TurnStarted,
)
from gateway.session.live_turns import MAX_FLOORLESS
from gateway.session.planning import CLOCK_LEAD_MS
from tests.doubles.answering import LONG, AnsweringModel
from tests.session.stage import Stage, stage

CLOCKED = StartSession(playout="clock", tool_flow="next_turn")


def reply_text(scene: Stage) -> str:
    return next(item.text for item in scene.session.history if item.role == "assistant")


async def test_an_out_of_band_reply_runs_beside_the_floor_and_leaves_no_item() -> None:
    model = AnsweringModel()
    async with stage(model=model) as scene:
        scene.send(SendText(text="Talk at length."))
        await scene.until(AudioFrame)
        scene.send(
            RequestReply(
                id="o",
                conversation="none",
                output="text",
                instructions="Be short.",
                metadata={"topic": "kind"},
                input=(ItemInfo(text="Classify this."),),
            )
        )
        started = await scene.until(TurnStarted, 2)
        assert (started.conversation, started.output, started.metadata) == ("none", "text", {"topic": "kind"})
        await scene.until(TurnDone, 2)
        assert "".join(delta.text for delta in scene.of(TextDelta, 2)) == "greeting"
        assert not scene.of(TurnDone, 1)
        assert [(m.role, m.text) for m in model.requests[-1].prompt.messages] == [("system", "Be short."), ("user", "Classify this.")]
        assert (await scene.until(TurnDone, 1)).status == "completed"
        assert [item.role for item in scene.session.history] == ["user", "assistant"]


async def test_an_out_of_band_reply_survives_an_interruption_and_can_be_cancelled_itself() -> None:
    async with stage(model=AnsweringModel()) as scene:
        scene.send(SendText(text="Talk at length."))
        scene.send(RequestReply(conversation="none", input=(ItemInfo(text="Also at length."),)))
        await scene.until(AudioFrame, 2)
        scene.send(SendText(text="Hello"))
        await scene.until(TurnDone, 1)
        assert [event.turn for event in scene.of(Interrupted)] == [1]
        scene.send(Cancel(turn=2))
        await scene.until(Interrupted, 2)
        assert (await scene.until(TurnDone, 2)).status == "interrupted"


async def test_out_of_band_replies_are_bounded() -> None:
    async with stage(model=AnsweringModel()) as scene:
        for _ in range(MAX_FLOORLESS + 1):
            scene.send(RequestReply(id=f"r{_}", conversation="none", input=(ItemInfo(text="At length at length"),)))
        await asyncio.sleep(0.01)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("too_many_replies", f"r{MAX_FLOORLESS}")]


async def test_a_reference_takes_an_item_of_the_conversation() -> None:
    model = AnsweringModel()
    async with stage(model=model) as scene:
        scene.send(AddItem(item_id="mine", text="Hello"))
        scene.send(RequestReply(id="r", conversation="none", input=(ItemInfo(item_id="mine"),)))
        scene.send(RequestReply(id="s", conversation="none", input=(ItemInfo(item_id="nobody"),)))
        await scene.until(TurnDone)
        assert model.requests[0].prompt.messages[-1].text == "Hello"
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("unknown_item", "s")]


async def test_an_empty_context_is_just_the_instructions() -> None:
    model = AnsweringModel()
    async with stage(model=model) as scene:
        scene.send(AddItem(text="Hello"))
        scene.send(RequestReply(instructions="Say yes.", input=()))
        await scene.until(ReplyDone)
        assert [message.role for message in model.requests[0].prompt.messages] == ["system"]


async def test_items_say_where_they_stand() -> None:
    async with stage(model=AnsweringModel()) as scene:
        scene.send(AddItem(item_id="a", text="A"))
        scene.send(AddItem(item_id="c", text="C"))
        scene.send(AddItem(item_id="b", text="B", after="a"))
        scene.send(AddItem(item_id="z", text="Z", after="root"))
        await scene.until(ItemAdded, n=4)
        assert [(item.item_id, item.after) for item in scene.of(ItemAdded)] == [("a", None), ("c", "a"), ("b", "a"), ("z", None)]


async def test_truncate_cuts_the_reply_to_what_was_heard() -> None:
    model = AnsweringModel()
    async with stage(model=model, start=CLOCKED) as scene:
        scene.send(SendText(text="Talk at length."))
        started = await scene.until(TurnStarted)
        assert started.reply_id is not None
        await scene.until(AudioFrame, n=30)
        scene.send(Cancel())
        scene.send(TruncateItem(id="t", item_id=started.reply_id, audio_ms=1500))
        cut = await scene.until(ItemTruncated)
        assert cut.audio_ms == 1500
        assert LONG.startswith(cut.text)
        assert 0 < len(cut.text) < len("This is sentence number one of a rather long reply.")
        assert reply_text(scene) == cut.text
        scene.send(SendText(text="Hello"))
        await scene.until(TurnStarted, 2)
        await asyncio.sleep(0.1)
        assert model.requests[-1].prompt.messages[-2].text == cut.text


@pytest.mark.parametrize(("asked_ms", "cut_ms"), [(0, 0), (-50, 0), (10_000_000, 3540)])
async def test_truncate_is_clamped_to_what_was_sent(asked_ms: float, cut_ms: int) -> None:
    async with stage(["One two three four five six seven. Eight nine ten eleven."], start=CLOCKED) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(ReplyDone)
        sent_ms = sum(done.audio_ms for done in scene.of(SegmentDone))
        scene.send(TruncateItem(item_id=scene.of(TurnStarted)[0].reply_id or "", audio_ms=asked_ms))
        cut = await scene.until(ItemTruncated)
        assert cut.audio_ms == (sent_ms if cut_ms else 0)
        assert bool(cut.text) is bool(cut_ms)


async def test_a_reply_stopped_before_its_first_sound_can_be_truncated() -> None:
    async with stage(model=AnsweringModel(ttft_ms=400), start=CLOCKED) as scene:
        scene.send(SendText(text="Talk at length."))
        await scene.until(TextDelta)
        scene.send(Cancel())
        await scene.until(TurnDone)
        scene.send(TruncateItem(item_id=scene.of(TurnStarted)[0].reply_id or "", audio_ms=100))
        assert (await scene.until(ItemTruncated)).audio_ms == 0


async def test_only_a_spoken_reply_can_be_truncated() -> None:
    async with stage(model=AnsweringModel(), start=StartSession(output="text", playout="clock")) as scene:
        scene.send(AddItem(item_id="mine", text="Hello"))
        scene.send(RequestReply())
        started = await scene.until(TurnStarted)
        await scene.until(ReplyDone)
        for ref, item_id in (("a", "mine"), ("b", started.reply_id or ""), ("c", "nobody")):
            scene.send(TruncateItem(id=ref, item_id=item_id, audio_ms=0))
        await asyncio.sleep(0.01)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [
            ("not_audio", "a"),
            ("not_audio", "b"),
            ("unknown_item", "c"),
        ]


async def test_a_clocked_client_gets_two_seconds_ahead_and_no_wait_at_a_stop() -> None:
    async with stage(model=AnsweringModel(), start=CLOCKED) as scene:
        scene.send(SendText(text="Talk at length."))
        await scene.until(AudioFrame)
        await asyncio.sleep(1)
        assert CLOCK_LEAD_MS <= scene.audio_ms(1) <= CLOCK_LEAD_MS + 1200
        scene.send(Cancel())
        await scene.until(Heard)
        assert scene.when(TurnDone) == pytest.approx(scene.when(Interrupted), abs=0.01)


async def test_a_clocked_reply_that_was_sent_is_no_longer_cancelled() -> None:
    async with stage(["One two three four five six."], start=CLOCKED) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(ReplyDone)
        scene.send(Cancel(id="a"))
        scene.send(Cancel(id="b", turn=1))
        await asyncio.sleep(0.01)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("unknown_turn", "a"), ("unknown_turn", "b")]
        assert reply_text(scene) == "One two three four five six."


async def test_items_are_shown_as_the_client_may_see_them() -> None:
    async with stage(["<think>Hm.</think>One two. [laughs]"]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnDone)
        scene.send(RetrieveItem(item_id=scene.of(TurnStarted)[0].reply_id or ""))
        assert (await scene.until(ItemRetrieved)).item.text.strip() == "One two."
        scene.send(DeleteItem(item_id=scene.of(TurnStarted)[0].reply_id or ""))
        scene.send(RetrieveItem(id="g", item_id=scene.of(TurnStarted)[0].reply_id or ""))
        await scene.until(ErrorRaised)
        assert scene.of(ErrorRaised)[0].code == "unknown_item"


async def test_what_a_client_gave_is_shown_as_it_gave_it() -> None:
    async with stage() as scene:
        given = "[laughs] *waves* ![](" * 1000
        scene.send(AddItem(item_id="a", role="assistant", text=given))
        scene.send(RetrieveItem(item_id="a"))
        assert (await scene.until(ItemRetrieved)).item.text == given


async def test_a_cancel_that_names_no_turn_means_no_reply_beside_the_conversation() -> None:
    async with stage(("A long answer for nobody's ears. " * 9,)) as scene:
        scene.send(RequestReply(id="r", conversation="none", output="text"))
        await scene.until(TextDelta)
        scene.send(Cancel(id="c"))
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("unknown_turn", "c")]
