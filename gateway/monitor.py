"""What the process watches about itself: how late the loop wakes, whether the engines answer, how full the GPUs are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from engine.api import EngineError, Health, Style, Synthesizer
from gateway.admission import Admission
from gateway.events import AudioOut
from gateway.metrics import Metrics
from gateway.shedding import LEVELS, Pressure
from gateway.stalls import StallWatch

TICK_S = 0.05
LAG_WARNING_S = 0.1  # a stall that a listener can hear
TELL_S = 5.0  # between two lines on stalls, unless one is twice as long: an overloaded loop has five a second, and each is counted
GPU_S = 5.0
PRESSURE_S = 0.25  # how often shedding is decided anew

log = logging.getLogger("stretto.monitor")


async def watch_loop(metrics: Metrics, pressure: Pressure) -> None:
    """Measure how late a short sleep ends; a late one means that something blocked the loop, and the log says what, now and then.

    Runs until cancelled.
    """
    loop = asyncio.get_running_loop()
    told_at, told_s = float("-inf"), 0.0
    with StallWatch(TICK_S + LAG_WARNING_S) as stalls:
        while True:
            due = loop.time() + TICK_S
            await asyncio.sleep(TICK_S)
            lag_s = max(0.0, loop.time() - due)
            stack = stalls.beat()
            metrics.loop_lag.observe(lag_s)
            pressure.woke(lag_s * 1000, loop.time())
            if lag_s > LAG_WARNING_S:
                metrics.process.loop_stalls.inc()
                if loop.time() - told_at >= TELL_S or lag_s >= 2 * told_s:
                    told_at, told_s = loop.time(), lag_s
                    log.warning("event loop was blocked", extra={"lag_ms": round(lag_s * 1000), "stack": stack or []})


async def watch_pressure(pressure: Pressure, admission: Admission, metrics: Metrics, now: Callable[[], float]) -> None:
    """Shed load as the rule says: tell it in the log, in metrics and to admission. Runs until cancelled."""
    while True:
        was = pressure.level
        if pressure.update(now()):
            is_more = LEVELS.index(pressure.level) > LEVELS.index(was)
            seen = {"lag_ms": _rounded(pressure.readings.lag_ms), "ttft_ms": _rounded(pressure.readings.ttft_ms)}
            told = {"to": pressure.level, "was": was, "reason": pressure.reason, **seen}
            log.log(logging.WARNING if is_more else logging.INFO, "shedding" if is_more else "shedding less", extra=told)
            if is_more:
                metrics.process.shed.labels(pressure.level, pressure.reason).inc()
        metrics.process.shedding.set(LEVELS.index(pressure.level))
        admission.shedding = pressure.refusal() if pressure.is_closed else None
        await asyncio.sleep(PRESSURE_S)


async def watch_engines(
    health: Callable[[], dict[str, Health]], is_open: Callable[[], bool], admission: Admission, metrics: Metrics
) -> None:
    """Open and close admission as the engines come and go, and count how often each goes. Runs until cancelled."""
    was_ready: set[str] = set()
    while True:
        are_ready = {name for name, state in health().items() if state.ready}
        for name in was_ready - are_ready:
            metrics.process.outages.labels(name).inc()
        was_ready = are_ready
        is_ready = is_open()
        if is_ready != admission.is_ready:
            log.warning("engines ready" if is_ready else "engines not ready", extra={"health": _details(health())})
        admission.is_ready = is_ready
        metrics.ready.set(is_ready)
        await asyncio.sleep(TICK_S)


@runtime_checkable
class Preparing(Protocol):
    """Voices that keep phrases and can make them ahead."""

    async def prepare(self, voice: str, language: str, style: Style, sample_rate_hz: int) -> None:
        """Make what is not kept yet. Raises `EngineError`."""


async def keep_phrases(voices: Synthesizer, voice: str, language: str) -> None:
    """Make the configured phrases before somebody waits for them, as sessions that ask for nothing hear them; then end."""
    able: object = voices
    if isinstance(able, Preparing) and voices.voices():
        try:
            await able.prepare(voice or voices.voices()[0].id, language, Style(), AudioOut().rate_hz)
        except EngineError as error:
            log.warning("phrases not made ahead", extra={"kind": error.kind, "detail": str(error)})


async def watch_gpu(metrics: Metrics) -> None:
    """Report GPU memory where NVML answers; otherwise ends at once. Runs until cancelled."""
    try:
        import pynvml
    except ImportError:
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return
    while True:
        with contextlib.suppress(pynvml.NVMLError):  # a driver that is busy answers the next time
            for number in range(pynvml.nvmlDeviceGetCount()):
                memory = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(number))
                metrics.process.gpu_used.labels(str(number)).set(memory.used)
                metrics.process.gpu_total.labels(str(number)).set(memory.total)
        await asyncio.sleep(GPU_S)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _details(engines: dict[str, Health]) -> str:
    return "; ".join(f"{name}: {health.detail}" for name, health in engines.items())
