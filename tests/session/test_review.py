"""Ends that meet: an interruption in the moment in which the engine lets go, a number that is used again."""

from __future__ import annotations

import asyncio

import pytest

from engine.fake import ScriptedModel
from gateway.events import (
    AudioFrame,
    Cancel,
    ClientEvent,
    ErrorRaised,
    Heard,
    Interrupted,
    PlayoutPaused,
    Say,
    SendText,
    ServerEvent,
    TurnDone,
    TurnStarted,
)
from tests.session.microphone import talking
from tests.session.stage import Stage, stage

LONG = " ".join(["This is a sentence of some length for the ear."] * 8)


def ends(scene: Stage, turn: int) -> list[type[ServerEvent]]:
    """Kinds of what left of a turn, from its interruption or failure on."""
    kinds = [type(event) for _, _, event in scene.frames if getattr(event, "turn", None) == turn]
    return kinds[min(kinds.index(kind) for kind in (Interrupted, ErrorRaised, TurnDone) if kind in kinds) :]


@pytest.mark.parametrize("stop", [Cancel(), SendText(text="No, this.")])
async def test_a_reply_stopped_before_its_first_word_ends_once(stop: ClientEvent) -> None:
    async with stage(model=ScriptedModel(["Hello there."], ttft_ms=500)) as scene:
        scene.send(SendText(text="Hello?"))
        await asyncio.sleep(0.2)
        scene.send(stop)
        await asyncio.sleep(10)
        assert ends(scene, 1) == [Interrupted, Heard, TurnDone]
        assert scene.of(TurnDone, 1)[0].status == "interrupted"
        assert scene.parts.metrics.engine_errors.labels("failed")._value.get() == 0


async def test_a_draft_dropped_before_its_first_word_leaves_the_turn_with_its_number_alone() -> None:
    model = ScriptedModel([LONG], ttft_ms=2000)
    async with talking(("What is down there",), scores=(0.4,), model=model) as (scene, microphone):
        await microphone.say(1200)
        await asyncio.sleep(0.6)
        scene.send(SendText(text="Typed over the draft."))
        await asyncio.sleep(8)
        assert ends(scene, 1) == [Interrupted, Heard, TurnDone], "the words that were being said stop it"
        spoke_s = scene.when(TurnStarted, 2)
        assert not [at for at, _, event in scene.frames if isinstance(event, AudioFrame) and event.turn == 1 and at > spoke_s]


async def test_a_reply_does_not_begin_to_sound_while_somebody_speaks() -> None:
    model = ScriptedModel([LONG], ttft_ms=1500)
    async with talking(("Wait, one more thing.",), model=model) as (scene, microphone):
        scene.send(SendText(text="Hello?"))
        await asyncio.sleep(1.4)
        await microphone.say(1500)
        await scene.until(Interrupted, 1)
        kinds = [type(event) for _, _, event in scene.frames]
        assert AudioFrame not in kinds[: kinds.index(PlayoutPaused) if PlayoutPaused in kinds else len(kinds)]


async def test_what_is_only_spoken_has_no_first_token() -> None:
    async with stage() as scene:
        scene.send(Say(text="Welcome aboard."))
        await scene.until(TurnDone)
        assert _count(scene, "stretto_ttft_seconds") == 0


async def test_the_wait_for_a_voice_is_not_the_wait_for_the_listener() -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Hello?"))
        await scene.until(TurnDone)
        assert _count(scene, "stretto_tts_first_chunk_seconds") == 8
        assert _sum(scene, "stretto_tts_first_chunk_seconds") < 8 * 0.3


def _count(scene: Stage, name: str) -> float:
    return _sample(scene, f"{name}_count")


def _sum(scene: Stage, name: str) -> float:
    return _sample(scene, f"{name}_sum")


def _sample(scene: Stage, name: str) -> float:
    return sum(sample.value for family in scene.parts.metrics.registry.collect() for sample in family.samples if sample.name == name)
