"""A blocked loop is found, and what blocked it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.metrics import Metrics
from gateway.monitor import watch_loop
from gateway.shedding import Pressure
from gateway.stalls import DEEPEST, StallWatch


def compute_for_too_long(left_s: float) -> None:
    ends_at = time.monotonic() + left_s
    while time.monotonic() < ends_at:
        pass


def wait_for_a_disk(left_s: float) -> None:
    time.sleep(left_s)


@pytest.mark.parametrize("block", [compute_for_too_long, wait_for_a_disk])
async def test_the_log_names_what_blocked_the_loop(block: Any, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(CollectorRegistry())
    with caplog.at_level(logging.WARNING, "stretto.monitor"):
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(watch_loop(metrics, Pressure()))
            await asyncio.sleep(0.1)
            block(0.4)
            await asyncio.sleep(0.1)
            watch.cancel()
    found: list[Any] = [record for record in caplog.records if any(block.__name__ in frame for frame in getattr(record, "stack", []))]
    assert found, f"{[vars(record).get('stack') for record in caplog.records]}"
    assert found[0].lag_ms >= 300
    assert any("test_stalls.py" in frame for frame in found[0].stack)
    assert (metrics.registry.get_sample_value("stretto_loop_stalls_total") or 0) >= len(caplog.records)


async def test_a_loop_that_is_blocked_again_and_again_is_counted_each_time_and_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(CollectorRegistry())
    with caplog.at_level(logging.WARNING, "stretto.monitor"):
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(watch_loop(metrics, Pressure()))
            for _ in range(4):
                await asyncio.sleep(0.1)
                wait_for_a_disk(0.3)
            await asyncio.sleep(0.1)
            watch.cancel()
    assert (metrics.registry.get_sample_value("stretto_loop_stalls_total") or 0) >= 4
    assert 1 <= len(caplog.records) <= 2, "a short one before them may have been told"


async def test_a_loop_that_answers_has_no_stack_taken() -> None:
    with StallWatch(limit_s=5.0) as stalls:
        for _ in range(5):
            await asyncio.sleep(0.03)
            assert stalls.beat() is None


async def test_the_thread_ends_with_its_loop() -> None:
    with StallWatch(limit_s=0.05) as stalls:
        wait_for_a_disk(0.3)
        stack = stalls.beat()
        assert stack is not None
        assert len(stack) <= DEEPEST
    await asyncio.to_thread(stalls._thread.join, 5)
    assert stalls._thread not in threading.enumerate()
