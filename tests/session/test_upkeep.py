"""Between turns: a long conversation stays within its budget and in the engine's cache, summed up where that is wanted."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from engine.api import EngineError, Generation
from engine.fake import Fault, Script, ScriptedModel, tokenize
from engine.fake.model import CACHE_BLOCK_TOKENS
from gateway.events import (
    Cancel,
    DeleteItem,
    ErrorRaised,
    HistoryItem,
    ItemInfo,
    RequestReply,
    SegmentDecided,
    SendText,
    StartSession,
    Tool,
    ToolCalled,
    ToolResult,
    TurnDone,
)
from tests.doubles.answering import AnsweringModel
from tests.session.stage import Stage, stage

PERSONA = "You are an old sea captain who answers in short sentences. " * 4
START = StartSession(output="text", instructions=PERSONA)
REPLY = "The tide turns twice a day, and no ship ever argued with it for long. " * 2
SUMMARY = "The user asked about tides."
TIGHT = {"session": {"context_tokens": 900}, "history": {"trim_at": 0.8, "trim_to": 0.5}}
SUMMED = {"session": {"context_tokens": 900}, "history": {"trim_at": 0.8, "trim_to": 0.5, "summarize": True}}


class Summarizer(ScriptedModel):
    """Answers like its script, and what is asked for a summary with `summary`."""

    def __init__(self, summary: Script) -> None:
        super().__init__([REPLY], ttft_ms=20, itl_ms=1)
        self.summary = summary

    def _next_script(self, generation: Generation) -> Script:
        return self.summary if generation.request_id.endswith("-summary") else super()._next_script(generation)


async def converse(scene: Stage, n_turns: int, *, pause_s: float = 5.0, first: int = 0) -> None:
    for number in range(first, first + n_turns):
        scene.send(SendText(text=f"Question {number}: how do the tides of the sea come about, captain, and when?"))
        await scene.until(TurnDone, n=number + 1)
        await asyncio.sleep(pause_s)


def turns(scene: Stage) -> list[Generation]:
    return [request for request in scene.model.requests if request.priority == 0]


def asked_for_summary(scene: Stage) -> list[Generation]:
    return [request for request in scene.model.requests if request.request_id.endswith("-summary")]


def trims(scene: Stage, how: str) -> float:
    return float(scene.parts.metrics.prompts.trims.labels(how)._value.get())


def tokens(scene: Stage, kind: str) -> float:
    return float(scene.parts.metrics.tokens.labels(kind)._value.get())


async def test_over_twenty_turns_the_cache_hits_all_but_what_is_new() -> None:
    async with stage([REPLY], settings=TIGHT, start=START) as scene:
        await converse(scene, 20)
        asked = turns(scene)
        usages = [usage for request, usage in zip(scene.model.requests, scene.model.usages, strict=True) if request.priority == 0]
        assert trims(scene, "dropped") >= 2, "the conversation outgrew its budget"
        new = [usage.prompt_tokens - usage.cached_tokens for usage in usages[1:]]
        assert max(new) < 80, "no turn reads more than its own words: what a trim costs is read between turns"
        assert all(len(request.prompt.ids) < 900 for request in asked)
        for request in asked:
            first, second = request.prompt.messages[:2]
            assert (first.role, first.text) == ("system", PERSONA)
            assert second.text.startswith("Question "), "whole messages, the user's first"


async def test_item_by_item_every_turn_would_miss() -> None:
    """What the big step is for: with steps of one turn the same conversation reads its whole history again and again."""
    steps = {"session": {"context_tokens": 900}, "history": {"trim_at": 0.5, "trim_to": 0.49}}
    async with stage([REPLY], settings=steps, start=START) as scene:
        await converse(scene, 20)
        assert trims(scene, "dropped") > 10


async def test_the_oldest_part_is_summed_up_behind_everyone_and_told_in_its_place() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY)))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        await converse(scene, 12)
        assert trims(scene, "dropped") == 0
        n_summed = trims(scene, "summarized")
        assert n_summed >= 1
        summaries = asked_for_summary(scene)
        assert len(summaries) == n_summed
        assert all(request.priority == 20 and request.sampling.max_tokens == 160 for request in summaries)
        assert summaries[0].prompt.messages[0].text == PERSONA, "the prefix that the engine knows"
        assert summaries[0].prompt.messages[1].text.startswith("Question 0")
        last = turns(scene)[-1].prompt.messages
        assert last[0].text == PERSONA
        assert last[1].text.startswith(f"(What we said before, in short: {SUMMARY})\n\nQuestion ")
        assert last[-1].text.startswith("Question 11")
        assert tokens(scene, "summary") > 0
        assert tokens(scene, "output") == 12 * len(tokenize(REPLY)), "counted apart from replies"


async def test_a_second_summary_holds_the_first() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY)))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        await converse(scene, 18)
        summaries = asked_for_summary(scene)
        assert len(summaries) >= 2
        assert summaries[1].prompt.messages[1].text.startswith(f"(What we said before, in short: {SUMMARY})")


async def test_a_summary_that_fails_or_says_nothing_falls_back_to_leaving_out() -> None:
    for script in (
        Script(tokens=("a",), fault=Fault(at=0, error=EngineError)),
        Script(tokens=("",)),
        Script(tokens=("a",), fault=Fault(at=0, error=None)),
    ):
        async with stage(model=Summarizer(script), settings=SUMMED, start=START) as scene:
            await converse(scene, 12, pause_s=30)
            assert trims(scene, "dropped") >= 1
            assert trims(scene, "summarized") == 0
            assert {done.status for done in scene.of(TurnDone)} == {"completed"}
            assert scene.model.n_open == 0


async def test_a_turn_that_begins_ends_the_summary_and_the_next_pause_tries_again() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY), ttft_ms=5000))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        number = 0
        while not asked_for_summary(scene):
            await converse(scene, 1, pause_s=1, first=number)
            number += 1
        assert trims(scene, "summarized") == 0
        await converse(scene, 1, pause_s=1, first=number)
        assert model.abandoned[0].endswith("-summary")
        assert turns(scene)[-1].prompt.messages[1].text.startswith("Question 0"), "nothing was left out yet"
        await converse(scene, 1, pause_s=20, first=number + 1)
        assert trims(scene, "summarized") == 1
        assert len(asked_for_summary(scene)) >= 3


async def test_a_turn_that_begins_ends_what_is_read_ahead_for_it() -> None:
    model = ScriptedModel([REPLY], ttft_ms=2000, itl_ms=1)
    async with stage(model=model, settings=TIGHT, start=START) as scene:
        await converse(scene, 10, pause_s=0.1)
        assert trims(scene, "dropped") >= 1
        assert any("-warm" in request_id for request_id in model.abandoned)
        assert {done.status for done in scene.of(TurnDone)} == {"completed"}


async def test_replies_beside_the_conversation_start_no_second_summary() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY), ttft_ms=5000))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        number = 0
        while not asked_for_summary(scene):
            await converse(scene, 1, pause_s=0, first=number)
            number += 1
        scene.send(RequestReply(conversation="none"))
        scene.send(RequestReply(conversation="none"))
        await asyncio.sleep(30)
        assert trims(scene, "summarized") == 1
        assert trims(scene, "dropped") == 0


async def test_a_conversation_that_never_pauses_still_stays_within_its_budget() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY), ttft_ms=5000))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        await converse(scene, 20, pause_s=0)
        assert all(len(request.prompt.ids) <= 900 for request in turns(scene))
        assert {done.status for done in scene.of(TurnDone)} == {"completed"}


async def test_a_summary_ends_with_its_session() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY), ttft_ms=15_000))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        number = 0
        while not asked_for_summary(scene):
            await converse(scene, 1, pause_s=1, first=number)
            number += 1
        assert scene.model.n_open == 1
        scene.session.close()
        await asyncio.sleep(0.01)
        assert scene.model.n_open == 0


async def test_what_was_deleted_while_it_was_summed_up_is_not_in_the_summary() -> None:
    model = Summarizer(Script(tokens=tokenize(SUMMARY), ttft_ms=3000))
    async with stage(model=model, settings=SUMMED, start=START) as scene:
        number = 0
        while not asked_for_summary(scene):
            await converse(scene, 1, pause_s=1, first=number)
            number += 1
        scene.send(DeleteItem(item_id=next(iter(scene.session.history)).item_id))
        await asyncio.sleep(20)
        assert trims(scene, "dropped") == 1
        assert not scene.session.history.earlier


async def test_over_ten_turns_with_tools_and_interruptions_only_new_words_are_read() -> None:
    said = ["Hello", "How is the weather?", "Tell me at length", "Hello again", "weather, please", "Look silently", "Tell me at length",
            "Hello there", "and the weather?", "Bye now"]  # fmt: skip
    model = AnsweringModel(ttft_ms=20, itl_ms=5)
    start = StartSession(output="text", instructions=PERSONA, tools=(Tool(name="get_weather"), Tool(name="get_time")))
    async with stage(model=model, start=start) as scene:
        for number, text in enumerate(said, 1):
            scene.send(SendText(text=text))
            if "at length" in text:
                await scene.until(SegmentDecided, turn=number)
                scene.send(Cancel())
            elif "weather" in text or "silently" in text:
                call = await scene.until(ToolCalled, turn=number)
                scene.send(ToolResult(call_id=call.call_id, output="sunny, light wind"))
            await scene.until(TurnDone, n=number)
        assert [done.status for done in scene.of(TurnDone)].count("interrupted") == 2
        asked = list(zip(model.requests, model.usages, strict=True))
        assert len(asked) == 14, "ten turns, four of them with a second request behind their tools"
        for (before, _), (request, usage) in pairwise(asked):
            known = len(before.prompt.ids) // CACHE_BLOCK_TOKENS * CACHE_BLOCK_TOKENS
            assert usage.cached_tokens >= known, "whatever the request before has read is found"
            assert request.prompt.reused >= len(before.prompt.ids), "by its ids, which need not come out of its text again"
            new = sum(len(tokenize(message.text)) for message in request.prompt.messages[len(before.prompt.messages) :])
            assert usage.prompt_tokens - usage.cached_tokens <= new + 3 * CACHE_BLOCK_TOKENS


async def test_a_conversation_that_is_longer_than_it_looked_is_answered_without_its_oldest_half() -> None:
    """The estimate says that there is room, the model's context that there is none: the turn is answered, and the next ones fit."""
    start = StartSession(
        output="text", instructions="Be kind.", history=tuple(HistoryItem(role="user", text=f"{n} " + "\u00e9 " * 300) for n in range(5))
    )
    model = ScriptedModel(["Fine."], context_tokens=1500)
    async with stage(model=model, settings={"session": {"context_tokens": 1200}}, start=start) as scene:
        for number in range(4):
            scene.send(SendText(text=f"Hello {number}?"))
            await scene.until(TurnDone, n=number + 1)
        assert {done.status for done in scene.of(TurnDone)} == {"completed"}
        assert not scene.of(ErrorRaised)
        first = turns(scene)[0].prompt.messages
        assert [message.text[:7] for message in (first[0], first[-1])] == ["Be kind", "Hello 0"]
        assert 3 <= len(first) < 7
        scene.send(RequestReply(id="r", conversation="none", input=(ItemInfo(role="user", text="\u00e9 " * 1600),)))
        await scene.until(ErrorRaised)
        assert [error.code for error in scene.of(ErrorRaised)] == ["context_too_long"], "what a client gave itself is not cut"


async def test_one_text_that_is_longer_than_the_context_is_told() -> None:
    async with stage(model=ScriptedModel(["Fine."], context_tokens=300), start=START) as scene:
        scene.send(SendText(text="\u00e9 " * 400))
        assert (await scene.until(TurnDone)).status == "failed"
        assert [error.code for error in scene.of(ErrorRaised)] == ["context_too_long"]
        scene.send(SendText(text="Hello?"))
        assert (await scene.until(TurnDone, n=2)).status == "completed"
