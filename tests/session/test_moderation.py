"""Words that a product does not let be heard: no answer to them and none of them leaves; a listener waits for one verdict at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from engine.api import ToolCall
from engine.fake import Fault, Script, ScriptedModel, tokenize
from gateway.events import (
    AudioFrame,
    Cancel,
    ErrorRaised,
    Interrupted,
    ItemDeleted,
    ReplyDone,
    RequestReply,
    Say,
    SegmentDecided,
    SendText,
    StartSession,
    TextDelta,
    Tool,
    TurnDone,
    TurnStarted,
)
from gateway.turn import Kind, Subject
from gateway.turn_state import State
from tests.session.microphone import talking
from tests.session.stage import Stage, stage
from tests.session.test_records import Book

REPLY = "One two three four five. Six seven bad eight nine. Ten eleven twelve thirteen."
PHRASE = {"moderation": {"phrase": "Let us talk of something else."}}


class Judge:
    """Refuses what contains `bad`; takes `wait_s`. A real moderator's deadline is its own."""

    def __init__(self, *kinds: Kind, wait_s: float = 0.02, refuses: Callable[[str], bool] = lambda text: "bad" in text) -> None:
        self.kinds = frozenset(kinds or ("input", "segment"))
        self.asked: list[Subject] = []
        self.wait_s, self._refuses = wait_s, refuses

    async def allows(self, subject: Subject) -> bool:
        self.asked.append(subject)
        await asyncio.sleep(self.wait_s)
        return not self._refuses(subject.text)


def shown(scene: Stage, turn: int | None = None) -> str:
    return "".join(event.text for event in scene.of(TextDelta, turn))


def said(scene: Stage) -> list[tuple[str, str]]:
    return [(item.role, item.text.strip()) for item in scene.session.history]


async def test_a_conversation_that_is_fine_is_the_same_and_every_word_was_seen() -> None:
    judge = Judge()
    async with stage(("One two three. Four five six.",), moderator=judge, start=StartSession(user="ann")) as scene:
        scene.send(SendText(text="Hello."))
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert shown(scene) == "".join(event.text for event in scene.of(SegmentDecided)) == "One two three. Four five six."
        assert sum(event.tokens for event in scene.of(TextDelta)) == scene.of(ReplyDone)[0].usage.output_tokens
    assert [(each.kind, each.text.strip(), each.index) for each in judge.asked] == [
        ("input", "Hello.", 0),
        ("segment", "One two three.", 0),
        ("segment", "Four five six.", 1),
    ]
    assert {(each.session_id, each.turn, each.caller.user) for each in judge.asked} == {(scene.session.session_id, 1, "ann")}


async def test_refused_words_are_not_answered_and_leave_the_conversation() -> None:
    async with stage((REPLY,), moderator=Judge("input"), settings=PHRASE) as scene:
        scene.send(SendText(text="Something bad."))
        done = await scene.until(TurnDone, 1)
        assert done.status == "refused"
        assert [(error.code, error.turn) for error in scene.of(ErrorRaised)] == [("input_refused", 1)]
        assert not scene.of(SegmentDecided, 1)
        assert not scene.of(TextDelta, 1)
        assert not scene.of(AudioFrame, 1)
        assert (await scene.until(TurnDone, 2)).status == "completed"
        assert shown(scene, 2) == "Let us talk of something else."
        assert scene.of(ItemDeleted)[0].item_id == scene.of(TurnStarted)[0].item_id
        assert said(scene) == [("assistant", "Let us talk of something else.")]
        assert scene.session.state is State.LISTENING
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone, 3)
        assert "bad" not in str(scene.model.requests[-1].prompt)


async def test_without_a_phrase_nothing_is_said() -> None:
    async with stage((REPLY,), moderator=Judge("input")) as scene:
        scene.send(SendText(text="Something bad."))
        await scene.until(TurnDone, 1)
        await asyncio.sleep(5)
        assert len(scene.of(TurnStarted)) == 1
        assert said(scene) == []


async def test_the_model_writes_while_the_words_are_judged_and_nothing_leaves_before_the_verdict() -> None:
    waits = []
    for wait_s in (0.0, 0.1, 1.0):
        async with stage(("One two three.",), moderator=Judge("input", wait_s=wait_s)) as scene:
            scene.send(SendText(text="Hello."))
            await scene.until(TurnDone)
            waits.append(scene.when(AudioFrame))
            assert scene.when(TextDelta) >= wait_s
    plain, short, long = waits
    assert short == pytest.approx(plain, abs=0.03), "a verdict within the time to the first segment costs nothing"
    assert long == pytest.approx(1.0, abs=0.05), "the voice has made the first segment meanwhile"


async def test_a_refused_segment_is_neither_shown_nor_spoken_and_ends_the_reply() -> None:
    book = Book()
    async with stage((REPLY, "Fine."), moderator=Judge("segment"), settings=PHRASE, watchers=(book,)) as scene:
        scene.send(SendText(text="Hello."))
        done = await scene.until(TurnDone, 1)
        assert done.status == "refused"
        assert scene.of(ReplyDone, 1)[0].cut == "refused"
        assert shown(scene, 1).strip() == "One two three four five."
        assert len(scene.of(SegmentDecided, 1)) == 1
        assert scene.audio_ms(1) > 500, "what may be heard is heard to its end"
        assert not scene.of(Interrupted)
        await scene.until(TurnDone, 2)
        assert said(scene) == [
            ("user", "Hello."),
            ("assistant", "One two three four five."),
            ("assistant", "Let us talk of something else."),
        ]
        assert len(scene.model.cancelled) >= 1, "the model does not write on"
    assert [record.status for record in book.records] == ["refused", "completed"]


async def test_a_first_segment_that_is_refused_leaves_nothing() -> None:
    async with stage(("A bad one. Two.",), moderator=Judge("segment")) as scene:
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone)).status == "refused"
        assert shown(scene) == ""
        assert not scene.of(AudioFrame)
        assert said(scene) == [("user", "Hello.")]


async def test_segments_keep_their_order_and_a_listener_waits_one_verdict_for_the_first() -> None:
    waits = []
    for wait_s in (0.0, 0.3):
        async with stage(("One two three four. Five six seven eight. Nine ten.",), moderator=Judge("segment", wait_s=wait_s)) as scene:
            scene.send(SendText(text="Hello."))
            await scene.until(TurnDone)
            waits.append(scene.when(AudioFrame))
            assert [event.index for event in scene.of(SegmentDecided)] == [0, 1, 2]
    assert waits[1] - waits[0] == pytest.approx(0.3, abs=0.03)


async def test_what_a_client_lets_say_is_its_own_and_a_reply_without_a_question_has_no_input() -> None:
    judge = Judge()
    async with stage(("Welcome.",), moderator=judge) as scene:
        scene.send(Say(text="Not bad."))
        await scene.until(TurnDone, 1)
        assert judge.asked == []
        scene.send(RequestReply())
        await scene.until(TurnDone, 2)
        assert [each.kind for each in judge.asked] == ["segment"]


async def test_a_cancel_while_the_words_are_judged_ends_the_turn_as_ever() -> None:
    async with stage((REPLY, "Yes."), moderator=Judge("input", wait_s=3.0)) as scene:
        scene.send(SendText(text="Hello."))
        await asyncio.sleep(1)
        scene.send(Cancel())
        done = await scene.until(TurnDone, 1)
        assert done.status == "interrupted"
        assert scene.of(Interrupted, 1)
        assert shown(scene) == ""
        scene.send(SendText(text="Again."))
        assert (await scene.until(TurnDone, 2)).status == "completed"


async def test_a_model_that_fails_while_the_words_are_judged_is_told_and_nothing_it_wrote_leaves() -> None:
    script = Script(tokens=tuple(tokenize("One two three. Four.")), fault=Fault(at=5))
    async with stage([script], moderator=Judge("input", wait_s=3.0)) as scene:
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone)).status == "failed"
        assert [error.code for error in scene.of(ErrorRaised)] == ["engine_failed"]
        assert shown(scene) == ""


async def test_spoken_words_are_judged_with_their_draft() -> None:
    judge = Judge("input", refuses=lambda text: "down" in text)
    async with talking(moderator=judge, settings=PHRASE) as (scene, microphone):
        await microphone.say(1200)
        assert (await scene.until(TurnDone, 1)).status == "refused"
        await scene.until(TurnDone, 2)
        assert shown(scene) == "Let us talk of something else."
        assert said(scene) == [("assistant", "Let us talk of something else.")]


async def test_a_spoken_question_that_is_fine_is_answered_from_its_draft() -> None:
    async with talking(moderator=Judge()) as (scene, microphone):
        await microphone.say(1200)
        assert (await scene.until(TurnDone, 1)).status == "completed"
        assert scene.parts.metrics.listening.speculation.labels("committed")._value.get() == 1


async def test_a_tool_of_a_refused_reply_is_not_waited_for() -> None:
    call = ToolCall(call_id="c", name="look", arguments="{}")
    model = ScriptedModel([Script(tokens=tuple(tokenize("A bad word. ")), tool_calls=(call,)), "Fine."])
    async with stage(model=model, moderator=Judge("segment"), start=StartSession(tools=(Tool(name="look"),))) as scene:
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone, 1)).status == "refused"
        assert scene.session.state is State.LISTENING
        scene.send(SendText(text="Go on."))
        assert (await scene.until(TurnDone, 2)).status == "completed"


async def test_a_reply_of_text_alone_is_judged_too() -> None:
    async with stage((REPLY,), moderator=Judge("segment"), start=StartSession(output="text")) as scene:
        scene.send(SendText(text="Hello."))
        assert (await scene.until(TurnDone)).status == "refused"
        assert shown(scene).strip() == "One two three four five."
        assert said(scene)[1] == ("assistant", "One two three four five.")


async def test_an_out_of_band_reply_is_judged_and_leaves_no_phrase() -> None:
    async with stage((REPLY,), moderator=Judge("segment"), settings=PHRASE) as scene:
        scene.send(RequestReply(conversation="none"))
        assert (await scene.until(TurnDone, 1)).status == "refused"
        await asyncio.sleep(3)
        assert len(scene.of(TurnStarted)) == 1
