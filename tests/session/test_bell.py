"""The wait for each frame: a sign or the time, whichever comes first."""

from __future__ import annotations

import asyncio

import pytest

from gateway.speaker.bell import Bell


async def test_a_ring_ends_the_wait() -> None:
    bell, loop = Bell(), asyncio.get_running_loop()
    loop.call_later(1.0, bell.ring)
    began_s = loop.time()
    await bell.wait(5.0)
    assert loop.time() - began_s == pytest.approx(1.0)


async def test_the_time_ends_the_wait() -> None:
    bell, loop = Bell(), asyncio.get_running_loop()
    began_s = loop.time()
    await bell.wait(5.0)
    assert loop.time() - began_s == pytest.approx(5.0)


async def test_a_ring_that_nobody_waits_for_is_forgotten() -> None:
    bell, loop = Bell(), asyncio.get_running_loop()
    bell.ring()
    began_s = loop.time()
    await bell.wait(2.0)
    bell.ring()
    await bell.wait(2.0)
    assert loop.time() - began_s == pytest.approx(4.0)


async def test_a_cancelled_wait_leaves_no_timer() -> None:
    bell, loop = Bell(), asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(bell.wait(50.0), name="waiting")
        await asyncio.sleep(1.0)
        waiting.cancel()
    timers = [timer for timer in loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]  # asyncio's own heap of timers
    assert not [timer for timer in timers if timer.when() > loop.time() + 40]
