"""What another process is told of a session: enough to go on, cut to what was heard, bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.api import ToolCall
from engine.fake import Script
from engine.fake_listening import ScriptedDetector, ScriptedRecognizer
from gateway.auth import FULL_RIGHTS
from gateway.errors import ReplyLost
from gateway.events import (
    AddItem,
    AudioFrame,
    AudioIn,
    ErrorRaised,
    Heard,
    Pong,
    SendText,
    ServerEvent,
    StartSession,
    Tool,
    ToolCalled,
    TurnDone,
    TurnStarted,
    UpdateSession,
)
from gateway.session import Session, saving
from tests.session.microphone import ScriptedEars
from tests.session.stage import Stage, stage

REPLY = "One two three four five six seven. Eight nine ten eleven twelve. And so on it goes until the very end."


def saved(scene: Stage) -> saving.SavedSession:
    return saving.decode(saving.encode(scene.session))


def waiting(session: Session, kind: type[ServerEvent]) -> list[Any]:  # Any: events of that kind
    return [event for event in session.outbox.waiting() if isinstance(event, kind)]


async def test_a_reply_under_way_is_saved_up_to_what_was_heard() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame, n=3)
        await asyncio.sleep(0.8)
        copy = saved(scene)
        assert [item.role for item in copy.items] == ["user", "assistant"]
        assert REPLY.startswith(copy.items[1].text)
        assert 0 < len(copy.items[1].text) < len(REPLY)
        (lost,) = copy.open_turns
        assert (lost.turn, lost.has_sound) == (1, True)
        assert lost.heard_text.strip() == copy.items[1].text.strip()
        assert 700 <= lost.heard_ms <= 1300
        await scene.until(TurnDone)
        assert saved(scene).open_turns == ()
        assert saved(scene).items[1].text == REPLY


async def test_a_reply_of_which_nothing_was_heard_leaves_no_item() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnStarted)
        assert [item.role for item in saved(scene).items] == ["user"]


async def test_who_goes_on_ends_the_reply_that_was_under_way() -> None:
    async with stage([REPLY]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame, n=3)
        copy = saved(scene)
        again = saving.restored(copy, scene.parts, last_seq=7, rights=FULL_RIGHTS)
        (error,) = waiting(again, ErrorRaised)
        assert (error.code, error.turn, error.retryable) == (ReplyLost.code, 1, True)
        assert waiting(again, Heard)[0].heard_text == copy.open_turns[0].heard_text
        assert (waiting(again, TurnDone)[0].turn, waiting(again, TurnDone)[0].status) == (1, "failed")
        assert (await again.outbox.next())[0] == 8, "numbers go on where the client stands"
        assert again.n_turns == 1


async def test_settings_go_along_as_they_are_now() -> None:
    tool = Tool(name="look", description="Look.", parameters={"type": "object"})
    start = StartSession(instructions="Be brief.", language="en-GB", user="u1", tools=(tool,), audio_in=AudioIn(rate_hz=8000))
    ears = ScriptedEars(ScriptedRecognizer(["Hm?"]), ScriptedDetector(), None)
    async with stage([REPLY], start=start, ears=ears) as scene:
        scene.send(UpdateSession(language="zh", output="text", max_tokens=99, turn_detection="push_to_talk", tool_choice="none"))
        again = saving.restored(saved(scene), scene.parts, last_seq=0, rights=FULL_RIGHTS)
        assert again.profile == scene.session.profile
        assert again.profile.tools == (tool,)
        assert again.start.user == "u1"
        assert again.start.turn_detection == "push_to_talk"
        assert again.start.language == "zh"
        assert again.audio_in == AudioIn(rate_hz=8000)


async def test_a_summary_of_what_was_left_out_goes_along() -> None:
    async with stage([REPLY]) as scene:
        scene.send(AddItem(text="I like ships."))
        before = saving.mark(scene.session)
        scene.session.history.leave_out(list(scene.session.history), "The user likes ships.")
        assert saving.mark(scene.session) != before
        again = saving.restored(saved(scene), scene.parts, last_seq=0, rights=FULL_RIGHTS)
        assert (again.history.earlier, [item.is_left_out for item in again.history]) == ("The user likes ships.", [True])


async def test_a_message_that_was_acted_on_is_not_done_twice_by_the_next_process() -> None:
    async with stage([REPLY]) as scene:
        scene.send(AddItem(id="once", text="Remember this."))
        again = saving.restored(saved(scene), scene.parts, last_seq=0, rights=FULL_RIGHTS)
        again.receive(AddItem(id="once", text="Remember this."))
        assert [item.text for item in again.history] == ["Remember this."]


async def test_a_call_that_waits_for_its_result_is_known_but_not_waited_for() -> None:
    async with stage(
        [Script(tokens=(), tool_calls=(ToolCall(call_id="c", name="look", arguments="{}"),))],
        start=StartSession(tools=(Tool(name="look"),)),
    ) as scene:
        scene.send(SendText(text="Look."))
        call = await scene.until(ToolCalled)
        again = saving.restored(saved(scene), scene.parts, last_seq=0, rights=FULL_RIGHTS)
        assert again.history.has_open_call(call.call_id)
        assert waiting(again, TurnDone)[0].status == "failed"


async def test_a_long_conversation_is_saved_from_its_end() -> None:
    async with stage([REPLY]) as scene:
        for number in range(20):
            scene.send(AddItem(text=f"{number} " + "x" * 30_000))
        data = saving.encode(scene.session)
        assert len(data) < 2 * saving.ITEMS_BYTES
        kept = [int(item.text.partition(" ")[0]) for item in saving.decode(data).items]
        assert kept == list(range(16, 20))


async def test_the_mark_changes_with_all_that_is_saved_and_rests_otherwise() -> None:
    async with stage([REPLY]) as scene:
        marks = [saving.mark(scene.session)]
        await asyncio.sleep(5)
        assert saving.mark(scene.session) == marks[0]
        for event in (AddItem(text="One."), AddItem(id="a", text="Two."), UpdateSession(max_tokens=9), SendText(text="Count.")):
            scene.send(event)
            marks.append(saving.mark(scene.session))
        for _ in range(3):
            await scene.until(AudioFrame)
            await asyncio.sleep(1.1)
            marks.append(saving.mark(scene.session))
        assert len(set(map(repr, marks))) == len(marks)


@pytest.mark.parametrize(("last_seq", "is_fine"), [(0, True), (40, True), (4096 + 40, True), (5000, False), (-1, False), (2**62, False)])
def test_a_client_cannot_have_seen_more_than_there_was(last_seq: int, is_fine: bool) -> None:
    profile: Any = None  # Any: not looked at
    copy = saving.SavedSession(session_id="s", start=StartSession(), profile=profile, last_seq=40)
    assert saving.follows(copy, last_seq) is is_fine


async def test_pong_is_the_next_number_after_a_move() -> None:
    async with stage([REPLY]) as scene:
        again = saving.restored(saved(scene), scene.parts, last_seq=11, rights=FULL_RIGHTS)
        again.outbox.put(Pong(t=1.0))
        assert await again.outbox.next() == (12, Pong(t=1.0))
