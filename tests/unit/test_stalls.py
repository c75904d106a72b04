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

LONGER = (0.4, 0.9, 2.0, 5.0)  # each more than twice as long, so that each is told


def compute_for_too_long(left_s: float) -> None:
    ends_at = time.monotonic() + left_s
    while time.monotonic() < ends_at:
        pass


def wait_for_a_disk(left_s: float) -> None:
    time.sleep(left_s)


@pytest.mark.may_block
@pytest.mark.parametrize("block", [compute_for_too_long, wait_for_a_disk])
async def test_the_log_names_what_blocked_the_loop(block: Any, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics(CollectorRegistry())
    with caplog.at_level(logging.WARNING, "stretto.monitor"):
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(watch_loop(metrics, Pressure()))
            found: list[Any] = []
            for block_s in LONGER:  # the thread that looks needs a core meanwhile
                await asyncio.sleep(0.1)
                block(block_s)
                await asyncio.sleep(0.1)
                found = [record for record in caplog.records if any(block.__name__ in frame for frame in getattr(record, "stack", []))]
                if found:
                    break
            watch.cancel()
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
    n_stalls = metrics.registry.get_sample_value("stretto_loop_stalls_total") or 0
    assert n_stalls >= 4
    assert 1 <= len(caplog.records) < n_stalls, "now and then: after seconds, or for one twice as long"


async def test_a_loop_that_answers_has_no_stack_taken() -> None:
    with StallWatch(limit_s=100.0) as stalls:
        for _ in range(5):
            await asyncio.sleep(0.03)
            assert stalls.beat() is None


async def test_the_thread_ends_with_its_loop() -> None:
    with StallWatch(limit_s=0.05) as stalls:
        wait_for_a_disk(0.3)
        for _ in range(200):
            if (stack := stalls.beat()) is not None:
                break
            wait_for_a_disk(0.3)
        assert stack is not None
        assert len(stack) <= DEEPEST
    await asyncio.to_thread(stalls._thread.join, 60)
    assert stalls._thread not in threading.enumerate()
