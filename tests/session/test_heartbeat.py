"""What conversations begin with stays in the engine's cache: at start, after a restart, and on a heartbeat that gives way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.api import EngineError, Facts, Generation, Kept, Message, Prompt
from engine.fake import ScriptedModel
from gateway.events import SendText, StartSession, TurnDone
from gateway.heartbeat import Heartbeat
from tests.session.stage import Stage, stage

CAPTAIN = "You are an old sea captain who answers in short sentences. " * 4
SETTINGS: dict[str, Any] = {  # Any: a settings tree as TOML gives it
    "instructions": "You are a friendly voice assistant. " * 4,
    "personas": {"captain": {"instructions": CAPTAIN}, "twin": {"instructions": CAPTAIN}},
    "keys": {"kiosk": {"key": "k", "persona": "captain", "isolate": True}, "open": {"key": "o"}},
    "warm_up": {"instructions": ["You sell tickets. " * 8], "every_s": 60, "max_replies": 1},
}


@asynccontextmanager
async def beating(model: ScriptedModel | None = None, settings: dict[str, Any] | None = None) -> AsyncIterator[Stage]:  # Any: as above
    async with stage(model=model, settings=settings or SETTINGS, start=StartSession(output="text")) as scene, asyncio.TaskGroup() as tasks:
        beat = tasks.create_task(Heartbeat(scene.parts, scene.sessions.admission).run(), name="heartbeat")
        yield scene
        beat.cancel()


def warmed(scene: Stage) -> list[Generation]:
    return [request for request in scene.model.requests if request.priority == 20]


def counted(scene: Stage, outcome: str) -> float:
    return float(scene.parts.metrics.prompts.warm_ups.labels("persona", outcome)._value.get())


async def test_every_beginning_is_read_once_at_start_and_again_on_each_beat() -> None:
    async with beating() as scene:
        await asyncio.sleep(5)
        first = [(request.prompt.messages[0].text[:12], request.cache_salt is not None) for request in warmed(scene)]
        assert first == [("You are a fr", False), ("You are an o", False), ("You sell tic", False), ("You are an o", True)]
        assert {request.sampling.max_tokens for request in warmed(scene)} == {1}
        assert counted(scene, "done") == 4
        read = scene.parts.metrics.tokens.labels("warm_up")._value.get()
        assert read > 100
        await asyncio.sleep(60)
        assert len(warmed(scene)) == 8
        assert scene.parts.metrics.tokens.labels("warm_up")._value.get() - read < 4 * 20, "it was all there still"


async def test_a_first_turn_finds_its_persona_cached() -> None:
    async with beating() as scene:
        await asyncio.sleep(5)
        session, _, _ = await scene.sessions.open(StartSession(output="text", persona="captain"))
        session.receive(SendText(text="What is down there?"))
        await asyncio.sleep(5)
        assert scene.model.usages[-1].cached_tokens > 40


async def test_a_beat_gives_way_to_replies_and_goes_on_after_them() -> None:
    model = ScriptedModel(ttft_ms=20, itl_ms=500)
    async with beating(model) as scene:
        await asyncio.sleep(5)
        scene.parts.headroom.count(is_draft=False, by=2)
        await asyncio.sleep(120)
        assert len(warmed(scene)) == 4, "two replies are on their way, one is let pass"
        scene.parts.headroom.count(is_draft=False, by=-1)
        await asyncio.sleep(5)
        assert len(warmed(scene)) == 8


async def test_an_engine_that_was_restarted_is_read_to_at_once() -> None:
    async with beating() as scene:
        await asyncio.sleep(5)
        scene.sessions.admission.is_ready = False
        await asyncio.sleep(1)
        scene.sessions.admission.is_ready = True
        await asyncio.sleep(5)
        assert len(warmed(scene)) == 8


async def test_what_cannot_be_read_is_passed_over_and_counted() -> None:
    class Picky(ScriptedModel):
        async def render(
            self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None
        ) -> Prompt:  # Any: JSON schema
            if messages[0].text == CAPTAIN:
                raise EngineError("no")
            return await super().render(messages, tools, kept)

    async with beating(Picky()) as scene:
        await asyncio.sleep(5)
        assert (counted(scene, "done"), counted(scene, "failed")) == (2, 2)
        scene.send(SendText(text="Hello?"))
        assert (await scene.until(TurnDone)).status == "completed"


async def test_a_server_that_refuses_every_warm_up_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(ScriptedModel):
        async def render(self, messages: Sequence[Message], tools: Sequence[Any], kept: Kept | None) -> Prompt:  # Any: JSON schema
            raise EngineError("this server schedules without priorities")

    async with beating(Refusing()) as scene:
        await asyncio.sleep(300)
        assert counted(scene, "failed") >= 16
    assert len([record for record in caplog.records if record.levelname == "WARNING" and "not warmed" in record.message]) == 1


async def test_an_engine_that_dies_under_a_beat_does_not_end_the_heartbeat() -> None:
    model = ScriptedModel(ttft_ms=2000)
    async with beating(model) as scene:
        await asyncio.sleep(1)
        model.die()
        scene.sessions.admission.is_ready = False
        await asyncio.sleep(1)
        assert counted(scene, "failed") == 1
        await model.start()
        scene.sessions.admission.is_ready = True
        await asyncio.sleep(30)
        assert counted(scene, "done") == 4


async def test_slots_and_strangers_are_read_to_at_start_alone() -> None:
    model = ScriptedModel()
    model.facts = Facts(keeps_prefixes=False, isolates=True)
    async with beating(model) as scene:
        await asyncio.sleep(600)
        assert len(warmed(scene)) == 4


async def test_every_seconds_zero_turns_the_heartbeat_off() -> None:
    async with beating(settings={**SETTINGS, "warm_up": {"every_s": 0}}) as scene:
        await asyncio.sleep(600)
        assert len(warmed(scene)) == 3


async def test_each_of_several_engines_is_read_to() -> None:
    model = ScriptedModel()
    model.facts = Facts(keeps_prefixes=True, isolates=True, places=3)
    async with beating(model, {"instructions": CAPTAIN}) as scene:
        await asyncio.sleep(5)
        assert [request.place for request in warmed(scene)] == [0, 1, 2]
