"""Tool calls: the turn waits, goes on with the results, and never waits for ever; what comes late or twice is told."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import ToolCall
from engine.fake import Script, ScriptedModel, tokenize
from gateway.errors import NotAvailable
from gateway.events import (
    Ack,
    AddItem,
    AudioFrame,
    Cancel,
    ErrorRaised,
    ItemAdded,
    ItemRetrieved,
    ReplyDone,
    RequestReply,
    RetrieveItem,
    Say,
    SegmentDecided,
    SendText,
    StartSession,
    TextDelta,
    Tool,
    ToolCalled,
    ToolResult,
    TurnDone,
    UpdateSession,
)
from gateway.speech.markup import MarkupRules
from gateway.turn.asking import MAX_ROUNDS
from gateway.turn_state import State
from tests.doubles.answering import WEATHER, AnsweringModel
from tests.session.stage import Stage, stage

TOOLS = (Tool(name="get_weather", description="Weather of a city.", parameters={"type": "object"}), Tool(name="get_time"))
START = StartSession(tools=TOOLS)


def roles(scene: Stage) -> list[str]:
    return [item.kind if item.kind != "message" else item.role for item in scene.session.history]


async def test_a_result_continues_the_turn_that_called() -> None:
    model = AnsweringModel()
    async with stage(model=model, start=START) as scene:
        scene.send(SendText(text="How is the weather?"))
        call = await scene.until(ToolCalled)
        assert (call.turn, call.name, call.arguments) == (1, "get_weather", '{"city": "Paris"}')
        assert scene.session.state is State.AWAITING_TOOL
        scene.send(ToolResult(id="r", call_id=call.call_id, output="sunny"))
        done = await scene.until(TurnDone)
        assert done.status == "completed"
        assert scene.of(Ack)[0].ref == "r"
        assert "".join(delta.text for delta in scene.of(TextDelta)) == "Let me look. It is sunny in Paris."
        assert [segment.index for segment in scene.of(SegmentDecided)] == [0, 1]
        assert roles(scene) == ["user", "assistant", "call", "result", "assistant"]
        told = model.requests[-1].prompt.messages
        assert [message.role for message in told] == ["system", "user", "assistant", "tool"]
        assert told[2].tool_calls == (ToolCall(call_id=call.call_id, name="get_weather", arguments=call.arguments),)
        assert told[3].call_id == call.call_id


async def test_the_model_is_told_of_the_tools() -> None:
    model = AnsweringModel()
    async with stage(model=model, start=START) as scene:
        scene.send(SendText(text="Hello"))
        await scene.until(ReplyDone)
        assert [tool["function"]["name"] for tool in model.requests[0].prompt.tools] == ["get_weather", "get_time"]
        scene.send(UpdateSession(tool_choice="function:get_time"))
        scene.send(SendText(text="Hello"))
        await scene.until(ReplyDone, 2)
        assert [tool["function"]["name"] for tool in model.requests[1].prompt.tools] == ["get_time"]
        scene.send(UpdateSession(tool_choice="none"))
        scene.send(SendText(text="Hello"))
        await scene.until(ReplyDone, 3)
        assert model.requests[2].prompt.tools == ()


async def test_words_before_a_call_are_spoken_while_the_tool_runs() -> None:
    async with stage(model=AnsweringModel(), start=START) as scene:
        scene.send(SendText(text="How is the weather?"))
        await scene.until(ToolCalled)
        await scene.until(AudioFrame)
        await asyncio.sleep(5)
        assert 700 <= scene.audio_ms(1) <= 800  # "Let me look. " whole


async def test_parallel_calls_wait_for_all_results() -> None:
    async with stage(model=AnsweringModel(), start=START) as scene:
        scene.send(SendText(text="Do both."))
        await scene.until(ToolCalled, n=2)
        first, second = scene.of(ToolCalled)
        scene.send(ToolResult(call_id=second.call_id, output="sunny at noon"))
        await asyncio.sleep(1)
        assert not scene.of(SegmentDecided)
        scene.send(ToolResult(call_id=first.call_id, output="sunny"))
        assert (await scene.until(TurnDone)).status == "completed"


async def test_a_result_twice_unknown_or_late_is_told() -> None:
    async with stage(model=AnsweringModel(), start=START) as scene:
        scene.send(ToolResult(id="a", call_id="nobody", output=""))
        scene.send(SendText(text="How is the weather?"))
        call = await scene.until(ToolCalled)
        scene.send(ToolResult(call_id=call.call_id, output="sunny"))
        scene.send(ToolResult(id="b", call_id=call.call_id, output="rainy"))
        await scene.until(TurnDone)
        scene.send(SendText(text="How is the weather?"))
        second = await scene.until(ToolCalled, n=2)
        assert second.call_id != call.call_id  # the model repeated its id
        scene.send(Cancel())
        scene.send(ToolResult(id="c", call_id=second.call_id, output="sunny"))
        await scene.until(TurnDone, 2)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("unknown_call", ref) for ref in "abc"]
        assert "result" not in [item.kind for item in scene.session.history if item.call_id == second.call_id]


async def test_tools_of_a_cancelled_turn_are_never_asked_for() -> None:
    async with stage(model=AnsweringModel(ttft_ms=500), start=START) as scene:
        scene.send(SendText(text="How is the weather?"))
        await asyncio.sleep(0.3)
        scene.send(Cancel())
        await scene.until(TurnDone)
        await asyncio.sleep(5)
        assert not scene.of(ToolCalled)


async def test_a_result_that_never_comes_fails_the_turn_in_time() -> None:
    async with stage(model=AnsweringModel(), start=START, settings={"turn": {"tool_result_s": 7.0}}) as scene:
        scene.send(SendText(text="How is the weather?"))
        called = await scene.until(ToolCalled)
        done = await scene.until(TurnDone)
        assert done.status == "failed"
        assert scene.of(ErrorRaised)[0].code == "tool_timeout"
        assert 7.0 <= scene.when(ErrorRaised) - scene.when(ToolCalled) < 7.1
        scene.send(ToolResult(id="late", call_id=called.call_id, output="sunny"))
        scene.send(SendText(text="Hello"))
        assert (await scene.until(TurnDone, 2)).status == "completed"
        assert scene.of(ErrorRaised)[-1].ref == "late"


async def test_an_unanswered_call_is_not_in_the_next_prompt() -> None:
    model = AnsweringModel()
    async with stage(model=model, start=START) as scene:
        scene.send(SendText(text="Look silently."))
        await scene.until(ToolCalled)
        scene.send(SendText(text="Hello"))
        await scene.until(TurnDone, 2)
        assert [message.role for message in model.requests[-1].prompt.messages] == ["system", "user", "user"]


async def test_a_model_that_calls_for_ever_is_stopped() -> None:
    """The last round offers no tools; a model that calls even then has said nothing, and its turn ends."""
    async with stage(model=AnsweringModel({"": Script(tokens=(), tool_calls=(WEATHER,))}), start=START) as scene:
        scene.send(SendText(text="Go."))
        for n in range(1, MAX_ROUNDS + 1):
            call = await scene.until(ToolCalled, n=n)
            scene.send(ToolResult(call_id=call.call_id, output="more"))
        assert (await scene.until(TurnDone)).status == "failed"
        assert len(scene.of(ToolCalled)) == MAX_ROUNDS


async def test_with_next_turn_flow_the_reply_ends_with_its_call() -> None:
    model = AnsweringModel()
    async with stage(model=model, start=StartSession(tools=TOOLS, tool_flow="next_turn", playout="clock")) as scene:
        scene.send(SendText(text="Look silently."))
        call = await scene.until(ToolCalled)
        await scene.until(ReplyDone, 1)
        scene.send(AddItem(kind="result", text="sunny", call_id=call.call_id))
        scene.send(RequestReply())
        await scene.until(ReplyDone, 2)
        assert roles(scene) == ["user", "call", "result", "assistant"]
        scene.send(AddItem(id="x", kind="result", text="sunny", call_id=call.call_id))
        scene.send(AddItem(id="y", kind="result", text="sunny", call_id="nobody"))
        await asyncio.sleep(0.01)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("unknown_call", "x"), ("unknown_call", "y")]
        assert len(scene.of(ItemAdded)) == 1


async def test_wrong_tools_are_refused_whole() -> None:
    async with stage(start=START) as scene:
        scene.send(UpdateSession(id="a", voice="fake-low", tools=(Tool(name="bad name"),)))
        scene.send(UpdateSession(id="b", tools=(Tool(name="same"), Tool(name="same"))))
        scene.send(UpdateSession(id="c", tool_choice="function:nobody"))
        await asyncio.sleep(0.01)
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("bad_message", ref) for ref in "abc"]
        assert scene.session.profile.voice == "fake-en"


async def test_a_model_that_takes_no_tools_says_so_and_the_conversation_goes_on() -> None:
    async with stage(model=ScriptedModel(["Fine."], takes_tools=False)) as scene:
        with pytest.raises(NotAvailable, match="Got 2 tools, and the language model of this gateway takes none"):
            await scene.sessions.open(START)
        assert len(scene.sessions) == 1, "no session was left behind"
        scene.send(UpdateSession(id="u", tools=TOOLS, voice="fake-low"))
        scene.send(RequestReply(id="r", tools=TOOLS))
        scene.send(SendText(text="Hello?"))
        assert (await scene.until(TurnDone)).status == "completed"
        assert [(error.code, error.ref) for error in scene.of(ErrorRaised)] == [("not_available", "u"), ("not_available", "r")]
        assert scene.session.profile.voice == "fake-en", "an update is taken whole or not at all"
        assert scene.model.requests[0].prompt.tools == ()


THINKS_FIRST = MarkupRules(starts_in_reasoning=True)


async def test_reasoning_behind_a_tools_result_is_neither_spoken_nor_repeated() -> None:
    answers: dict[str, Script | str] = {
        "weather": Script(tokens=tokenize("They want weather.</think>Let me look. "), tool_calls=(WEATHER,)),
        "sunny": "The tool says sunny.</think>It is sunny in Paris.",
        "Thanks": "They are polite.</think>You are welcome.",
    }
    async with stage(model=AnsweringModel(answers), start=START, rules=THINKS_FIRST) as scene:
        scene.send(SendText(text="How is the weather?"))
        call = await scene.until(ToolCalled)
        scene.send(ToolResult(call_id=call.call_id, output="sunny"))
        await scene.until(TurnDone)
        assert "".join(delta.text for delta in scene.of(TextDelta)) == "Let me look. It is sunny in Paris."
        assert [item.text for item in scene.session.history if item.role == "assistant" and item.kind == "message"] == [
            "Let me look. ",
            "It is sunny in Paris.",
        ]
        scene.send(SendText(text="Thanks."))
        await scene.until(TurnDone, 2)
        assert not any("They" in message.text or "tool says" in message.text for message in scene.model.requests[-1].prompt.messages)


async def test_what_is_said_for_the_client_is_no_reasoning() -> None:
    async with stage(rules=THINKS_FIRST) as scene:
        scene.send(Say(text="Hello there."))
        await scene.until(TurnDone)
        assert [segment.text for segment in scene.of(SegmentDecided)] == ["Hello there."]
        (item,) = scene.session.history
        assert item.text == "Hello there."
        scene.send(RetrieveItem(item_id=item.item_id))
        assert (await scene.until(ItemRetrieved)).item.text == "Hello there."
