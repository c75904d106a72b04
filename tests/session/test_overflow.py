"""A client that does not read until its frames overflow loses its session, whatever put the frame too many; nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.errors import SlowReader
from gateway.events import AudioFrame, Cancel, GoingAway, Ping, Pong, SendText, StartSession, TextDelta, TurnDone
from gateway.outbox import MAX_WAITING
from tests.session.stage import Stage, stage

LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
LATE_CAPTIONS = {"turn": {"text_delta_ms": 5_000}}  # sent by their timer, long after the turn's task has written them


def fill(scene: Stage, n_left: int) -> None:
    """Answers that nobody reads, until there is room for so many frames more."""
    outbox = scene.session.outbox
    for _ in range(MAX_WAITING - n_left - len(list(outbox.waiting()))):
        outbox.put(Pong())


def nothing(_: Stage) -> None:
    """The caption's timer, or the turn's own task, puts the frame too many."""


def cancel(scene: Stage) -> None:
    """The task that settles the turn puts what was heard of it."""
    scene.send(Cancel())


def drain(scene: Stage) -> None:
    """Everybody is told, one after the other."""
    scene.sessions.drain(5.0)


def ask(scene: Stage) -> None:
    """The client itself."""
    for _ in range(8):
        scene.send(Ping())


@pytest.mark.parametrize("then", [nothing, cancel, drain, ask])
@pytest.mark.parametrize("n_left", range(4))
@pytest.mark.parametrize("output", ["audio", "text"])
async def test_frames_that_overflow_end_their_session_and_nothing_else(
    then: Callable[[Stage], None], n_left: int, output: str, caplog: pytest.LogCaptureFixture
) -> None:
    start = StartSession(output="text" if output == "text" else "audio")
    async with stage([LONG, LONG], settings=LATE_CAPTIONS, start=start) as scene:
        other, attached, _ = await scene.sessions.open(StartSession())
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame if output == "audio" else TextDelta)
        await scene.stop_reading()
        fill(scene, n_left)
        then(scene)
        scene.send(SendText(text="Count."))
        await asyncio.sleep(30)
        assert isinstance(scene.attachment.ended.result(), SlowReader)
        assert scene.sessions.ids() == [other.session_id]
        assert not attached.ended.done()
        assert [type(frame) for frame in other.outbox.waiting()] == ([GoingAway] if then is drain else [])
        other.receive(Ping())
        assert isinstance(list(other.outbox.waiting())[-1], Pong)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_frames_that_overflow_while_their_client_is_away_end_its_session(caplog: pytest.LogCaptureFixture) -> None:
    async with stage([LONG], settings=LATE_CAPTIONS) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame)
        await scene.stop_reading()
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        fill(scene, 1)
        await asyncio.sleep(30)
        assert (scene.sessions.ids(), scene.sessions.admission.detached) == ([], 0)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_full_outbox_that_is_read_again_in_time_loses_nothing() -> None:
    async with stage([LONG]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(AudioFrame)
        await scene.stop_reading()
        fill(scene, 200)
        await asyncio.sleep(1)
        scene.sessions.lose(scene.session, scene.attachment, is_over=False)
        scene.session.attach()
        scene._reader = asyncio.create_task(scene._read(), name="client")
        await scene.until(TurnDone)
        assert [seq for _, seq, _ in scene.frames] == list(range(1, len(scene.frames) + 1))
