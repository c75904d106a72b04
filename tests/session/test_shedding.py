"""Load is shed while conversations go on: drafts and warm-ups first, then newcomers, never who is in. Virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from engine.fake import Script, ScriptedModel, tokenize
from gateway.auth import Rights
from gateway.errors import BeyondShare, Shedding
from gateway.events import Resume, SendText, StartSession, TurnDone
from gateway.monitor import watch_pressure
from tests.session.microphone import talking
from tests.session.stage import Stage, stage

SETTINGS: dict[str, Any] = {"shedding": {"ttft_ms": 800.0, "lag_ms": 20.0, "window_s": 5.0, "calm_s": 3.0}}
REPLY = "Yes. That is so."
N = 5


def slow(ttft_ms: float) -> ScriptedModel:
    return ScriptedModel([Script(tokens=tokenize(REPLY), ttft_ms=ttft_ms)])


@asynccontextmanager
async def shedding(model: ScriptedModel, settings: dict[str, Any] | None = None) -> AsyncIterator[Stage]:
    async with stage(model=model, settings=SETTINGS | (settings or {})) as scene, asyncio.TaskGroup() as tasks:
        parts = scene.parts
        watch = tasks.create_task(watch_pressure(parts.pressure, scene.sessions.admission, parts.metrics, parts.now), name="pressure")
        try:
            yield scene
        finally:
            watch.cancel()


async def crowd(scene: Stage, n: int = N) -> list[Stage]:
    """More clients of the same house."""
    others = [Stage(scene.sessions, scene.parts, scene.model, scene.voice) for _ in range(n)]
    for other in others:
        await other.start()
    return others


def counted(scene: Stage, name: str, **labels: str) -> float:
    return scene.parts.metrics.registry.get_sample_value(name, labels) or 0.0


async def test_newcomers_are_refused_while_the_model_is_late_and_running_turns_end_well() -> None:
    async with shedding(slow(1200)) as scene:
        others = await crowd(scene)
        for guest in others:
            guest.send(SendText(text="Is it?"))
        await asyncio.sleep(1.1)
        with pytest.raises(Shedding) as refused:
            await scene.sessions.open(StartSession())
        assert refused.value.retry_after_ms == 3000
        assert counted(scene, "stretto_admission_refused_total", reason="shedding") == 1
        assert counted(scene, "stretto_shedding") == 2
        assert counted(scene, "stretto_shedding_changes_total", to="closed", reason="ttft") == 1
        for guest in others:
            assert (await guest.until(TurnDone)).status == "completed"
            guest.send(SendText(text="And is it still?"))
            assert (await guest.until(TurnDone, n=2)).status == "completed", "who is in may go on talking"
            await guest.stop_reading()


async def test_it_opens_again_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "stretto.monitor")
    async with shedding(slow(1200)) as scene:
        others = await crowd(scene)
        for guest in others:
            guest.send(SendText(text="Is it?"))
        await asyncio.sleep(1.5)
        assert scene.sessions.newcomer_refusal("") is not None
        await asyncio.sleep(20.0)
        assert scene.sessions.newcomer_refusal("") is None
        assert counted(scene, "stretto_shedding") == 0
        (newcomer,) = await crowd(scene, 1)
        for guest in (*others, newcomer):
            await guest.stop_reading()
    told = [(record.levelname, record.msg, vars(record)["to"]) for record in caplog.records if record.name == "stretto.monitor"]
    assert told == [("WARNING", "shedding", "closed"), ("INFO", "shedding less", "eased"), ("INFO", "shedding less", "open")]


async def test_a_client_that_comes_back_is_let_in_while_newcomers_are_not() -> None:
    async with shedding(slow(1200)) as scene:
        others = await crowd(scene)
        for guest in others:
            guest.send(SendText(text="Is it?"))
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        await asyncio.sleep(1.1)
        with pytest.raises(Shedding):
            await scene.sessions.open(StartSession())
        back = Resume(session_id=scene.session.session_id, token=scene.ready.resume_token, last_seq=scene.session.outbox.last_seq)
        _, _, ready = await scene.sessions.open(StartSession(resume=back))
        assert ready.resumed
        for guest in others:
            await guest.stop_reading()


async def test_a_loop_that_wakes_late_closes_the_house() -> None:
    async with shedding(slow(50)) as scene:
        for _ in range(100):
            await asyncio.sleep(0.08)
            scene.parts.pressure.woke(30.0, scene.parts.now())
        with pytest.raises(Shedding, match="This server answers late"):
            await scene.sessions.open(StartSession())


@pytest.mark.parametrize(("lag_ms", "outcome"), [(0.0, "committed"), (15.0, "no_headroom")])
async def test_drafts_stop_before_newcomers_are_refused(lag_ms: float, outcome: str) -> None:
    async with talking(settings=SETTINGS) as (scene, microphone):
        pressure = scene.parts.pressure
        for _ in range(60):
            pressure.woke(lag_ms, scene.parts.now())
        pressure.update(scene.parts.now())
        assert pressure.level == ("eased" if lag_ms else "open")
        await microphone.say(2000)
        assert (await scene.until(TurnDone)).status == "completed"
        assert counted(scene, "stretto_speculation_total", outcome=outcome) >= 1
        assert counted(scene, "stretto_speculation_total", outcome="committed") == (outcome == "committed")
        assert scene.sessions.newcomer_refusal("") is None


@pytest.mark.parametrize("lag_ms", [0.0, 15.0])
async def test_conversations_are_not_warmed_while_the_process_is_pressed(lag_ms: float) -> None:
    async with talking(settings=SETTINGS) as (scene, microphone):
        await asyncio.sleep(40.0)
        for _ in range(60):
            scene.parts.pressure.woke(lag_ms, scene.parts.now())
        scene.parts.pressure.update(scene.parts.now())
        await microphone.say(2000)
        await scene.until(TurnDone)
        assert counted(scene, "stretto_warm_ups_total", kind="conversation", outcome="done") == (0 if lag_ms else 1)


async def test_one_key_cannot_take_every_place_from_another() -> None:
    keys = {"keys": {"greedy": {"key": "sha256:" + "0" * 64}, "modest": {"key": "sha256:" + "1" * 64}}}
    async with shedding(slow(50), settings={"session": {"max_sessions": 8, "reserve_share": 0.25}, **keys}) as scene:
        scene.parts.quota.know(("greedy", "modest"))
        for _ in range(5):  # two of eight places are kept, and the stage's own client has one
            await scene.sessions.open(StartSession(), Rights(name="greedy"))
        with pytest.raises(BeyondShare):
            await scene.sessions.open(StartSession(), Rights(name="greedy"))
        for _ in range(2):
            await scene.sessions.open(StartSession(), Rights(name="modest"))
        assert counted(scene, "stretto_admission_refused_total", reason="fair_share") == 1
