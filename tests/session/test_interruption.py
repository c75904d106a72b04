"""Stopping a reply: by new text, by cancel, at every moment of a turn; history holds what was heard."""

from __future__ import annotations

import asyncio
import random

import pytest

from engine.fake import ScriptedModel, ScriptedVoice, tokenize
from gateway.events import (
    AudioFrame,
    Cancel,
    ErrorRaised,
    Heard,
    Interrupted,
    ReplyDone,
    RequestReply,
    Say,
    SegmentDone,
    SendText,
    ServerEvent,
    StartSession,
    TextDelta,
    TurnDone,
    TurnStarted,
)
from tests.session.stage import Stage, stage

LONG = " ".join(f"This is sentence number {word} of a rather long reply." for word in ("one", "two", "three", "four", "five", "six"))


def after_interrupt(scene: Stage, turn: int) -> list[ServerEvent]:
    """What left of a turn after its `interrupted`."""
    kinds = [event for _, _, event in scene.frames if getattr(event, "turn", None) == turn]
    place = next(i for i, event in enumerate(kinds) if isinstance(event, Interrupted))
    return kinds[place + 1 :]


async def test_text_while_a_reply_plays_interrupts_it_and_is_answered() -> None:
    async with stage([LONG, "Sure."]) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame, n=5)
        await asyncio.sleep(0.5)  # a few words are heard
        interrupted_at = scene.time()
        scene.send(SendText(id="b", text="Stop, something else."))
        await scene.until(TurnDone, 2)
        await scene.until(TurnDone, 1)
        assert scene.of(Interrupted)[0].reason == "text"
        assert scene.when(Interrupted) - interrupted_at < 0.05
        assert [type(event) for event in after_interrupt(scene, 1)] == [Heard, TurnDone]
        assert scene.of(TurnDone, 1)[0].status == "interrupted"
        assert [item.role for item in scene.session.history] == ["user", "assistant", "user", "assistant"]


async def test_cancel_stops_engine_and_voice_at_once() -> None:
    model, voice = ScriptedModel([LONG]), ScriptedVoice()
    async with stage(model=model, voice=voice) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame)
        scene.send(Cancel(id="c"))
        await asyncio.sleep(0.01)
        assert model.n_open == 0
        assert voice.n_open == 0
        assert scene.of(Interrupted)[0].reason == "cancel"


async def test_heard_follows_the_clients_last_word_and_history_is_cut_there() -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame, n=12)
        scene.report(1, 300)
        scene.send(Cancel())
        estimate = next(item.text for item in scene.session.history if item.role == "assistant")
        scene.report(1, 800, final=True)
        heard = await scene.until(Heard)
        assert heard.heard_ms == 800
        assert LONG.startswith(heard.heard_text)
        assert 0 < len(heard.heard_text) < len("This is sentence number one of a rather long reply.")
        reply = next(item.text for item in scene.session.history if item.role == "assistant")
        assert reply.strip() == heard.heard_text.strip()
        assert len(reply) > len(estimate)


async def test_heard_comes_after_two_seconds_when_the_client_says_nothing() -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame, n=5)
        scene.send(Cancel())
        await scene.until(TurnDone)
        assert scene.when(Heard) - scene.when(Interrupted) == pytest.approx(2.0, abs=0.01)


async def test_nothing_heard_leaves_no_assistant_message() -> None:
    async with stage([LONG], model=ScriptedModel([LONG], ttft_ms=500)) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await asyncio.sleep(0.2)
        scene.send(Cancel())
        heard = await scene.until(Heard)
        assert (heard.heard_ms, heard.heard_text) == (0, "")
        assert scene.when(Heard) == pytest.approx(scene.when(Interrupted), abs=0.001)
        await scene.until(TurnDone)
        assert [item.role for item in scene.session.history] == ["user"]
        assert scene.parts.metrics.abandoned.labels("ttft")._value.get() == 1


async def test_text_output_keeps_what_was_sent_and_has_no_heard() -> None:
    async with stage([LONG], start=StartSession(output="text")) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(TextDelta, n=3)
        scene.send(Cancel())
        await scene.until(TurnDone)
        assert not scene.of(Heard)
        kept = next(item.text for item in scene.session.history if item.role == "assistant")
        assert kept.startswith("".join(delta.text for delta in scene.of(TextDelta)))
        assert LONG.startswith(kept)


async def test_a_reply_that_only_plays_out_can_still_be_interrupted() -> None:
    async with stage(["One two three four five six seven. Eight nine ten.", "Yes."], settings={"session": {"lead_ms": 5000}}) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(ReplyDone)
        assert not scene.of(TurnDone)
        scene.send(SendText(text="Stop."))
        await scene.until(TurnDone, 1)
        assert scene.of(TurnDone, 1)[0].status == "interrupted"
        await scene.until(TurnDone, 2)


async def test_say_and_reply_create_wait_for_the_floor() -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame)
        scene.send(Say(id="s", text="Attention."))
        scene.send(RequestReply(id="r"))
        await asyncio.sleep(0.01)
        assert [(e.code, e.ref, e.retryable) for e in scene.of(ErrorRaised)] == [("turn_active", "s", True), ("turn_active", "r", True)]
        assert not scene.of(Interrupted)


async def test_a_new_reply_may_start_behind_one_that_plays_out() -> None:
    async with stage(["One two three four five six seven.", "And eight."], settings={"session": {"lead_ms": 5000}}) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(ReplyDone, 1)
        scene.send(RequestReply())
        await scene.until(TurnDone, 1)
        await scene.until(TurnDone, 2)
        assert {done.status for done in scene.of(TurnDone)} == {"completed"}


async def test_cancel_without_a_reply_is_told() -> None:
    async with stage() as scene:
        scene.send(Cancel(id="c"))
        scene.send(Cancel(id="d", turn=7))
        await asyncio.sleep(0.01)
        assert [(e.code, e.ref) for e in scene.of(ErrorRaised)] == [("unknown_turn", "c"), ("unknown_turn", "d")]


async def test_three_barge_ins_in_a_row_leave_one_answer() -> None:
    async with stage([LONG, LONG, LONG, "Fine."]) as scene:
        for text in ("One.", "Two.", "Three.", "Four."):
            scene.send(SendText(text=text))
            await asyncio.sleep(0.15)
        for turn in (1, 2, 3, 4):
            await scene.until(TurnDone, turn)
        assert [scene.of(TurnDone, turn)[0].status for turn in (1, 2, 3, 4)] == ["interrupted"] * 3 + ["completed"]
        assert scene.model.n_open == 0


@pytest.mark.parametrize("seed", range(40))
async def test_an_interruption_at_any_moment_keeps_every_promise(seed: int) -> None:
    chance = random.Random(seed)
    voice = ScriptedVoice(first_chunk_ms=chance.choice([0, 60, 300]), rtf=chance.choice([0.1, 0.9]))
    async with stage([LONG, "Good."], voice=voice) as scene:
        scene.reports_playout = chance.random() < 0.5
        scene.send(SendText(text="Tell me a lot."))
        await asyncio.sleep(chance.uniform(0, 8))
        scene.send(SendText(text="Stop."))
        await scene.until(TurnDone, 2)
        await scene.until(TurnDone, 1)
        assert [type(event) for event in after_interrupt(scene, 1)] == [Heard, TurnDone]
        heard = scene.of(Heard, 1)[0]
        assert heard.heard_ms <= scene.audio_ms(1) + 1
        assert LONG.startswith(heard.heard_text)
        assert scene.of(TurnStarted)[-1].turn == 2
        assert len(scene.of(SegmentDone, 2)) == 1
        texts = [item.text for item in scene.session.history]
        assert "" not in texts
        assert "..." not in texts


@pytest.mark.parametrize("reports", [False, True])
async def test_without_the_clients_last_word_no_more_counts_as_heard_than_until_the_interruption(reports: bool) -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(AudioFrame)
        if reports:
            scene.report(1, 0)
        await asyncio.sleep(0.3)
        scene.send(Cancel())
        heard = await scene.until(Heard)
        assert heard.heard_ms == pytest.approx(300, abs=1)
        assert scene.audio_ms(1) > 1000, "more was sent ahead than heard"


def tokens(scene: Stage, kind: str) -> float:
    return float(scene.parts.metrics.tokens.labels(kind)._value.get())


async def test_what_was_read_and_made_for_an_interrupted_turn_is_counted() -> None:
    async with stage((LONG, LONG), start=StartSession(output="text")) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(TextDelta)
        scene.send(Cancel())
        assert (await scene.until(TurnDone)).status == "interrupted"
        made = tokens(scene, "output")
        assert 0 < made < len(tokenize(LONG))
        assert tokens(scene, "prompt") == len(scene.model.requests[0].prompt.ids)
        scene.send(SendText(text="Again."))
        await scene.until(TurnDone, 2)
        assert tokens(scene, "output") == made + len(tokenize(LONG)), "each turn once"


async def test_tokens_of_a_turn_whose_session_ends_under_it_are_counted() -> None:
    async with stage((LONG,), start=StartSession(output="text")) as scene:
        scene.send(SendText(text="Tell me a lot."))
        await scene.until(TextDelta)
        scene.session.close()
        await asyncio.sleep(0.1)
        assert tokens(scene, "output") > 0
