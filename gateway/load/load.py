"""One load from beginning to end: clients started, the gateway watched, a line of progress, a drain where one is asked for, the report."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.bench.own_gateway import OwnGateway
from gateway.bench.report import machine
from gateway.client import ConnectFailed
from gateway.load.crew import END_S, Errand
from gateway.load.crews import Combined, CrewProcess, combined, crews
from gateway.load.knocking import knock
from gateway.load.plan import Plan, Window, windows
from gateway.load.report import TURN_ENDS, Drain, Knocks, Report, Stretch, client_use, slope_per_min, stretch
from gateway.load.tally import merged
from gateway.load.watch import POINTS, Scrape, Watch, thinned

START_S = 3.0  # for the client processes to be there
PROGRESS_S = 1.0
SLOW_PROGRESS_S = 10.0  # where the line cannot be written over itself
DRAIN_S = 180.0
DRAIN_BEFORE_END_S = 1.0  # while everybody still talks


class Order(Struct, frozen=True, kw_only=True):
    """What to do, and where. `own`: the gateway's process, where it is ours."""

    plan: Plan
    url: str
    key: str | None
    tls: ssl.SSLContext | None
    engines: str
    n_crews: int
    pid: int | None = None
    own: OwnGateway | None = None
    insecure: bool = False
    speech: str = ""
    n_knocks: int = 0
    drain: bool = False


class Load:
    """Runs one order; `say` gets the progress."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._windows = windows(order.plan)
        self._began_s = time.monotonic() + START_S
        self._watch = Watch(order.url, order.key, order.pid, order.tls, self._began_s)
        self._made: list[CrewProcess] = []
        self._pages: list[tuple[Scrape | None, Scrape | None]] = []
        self._knocks: Knocks | None = None
        self._drain: Drain | None = None
        self._is_stopped = False

    async def run(self) -> Report:
        """The whole load. Raises `ConnectFailed` where no client process could begin."""
        order = self._order
        plan = order.plan
        errands = [
            Errand(
                plan=plan,
                url=order.url,
                began_s=self._began_s,
                crew=n,
                n_crews=order.n_crews,
                insecure=order.insecure,
                speech=order.speech,
            )
            for n in range(order.n_crews)
        ]
        first = await self._watch.scrape()
        async with crews(errands, order.key) as self._made, asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(crew.follow(), name="client") for crew in self._made]
            beside = [
                tasks.create_task(self._watch.follow(max(1.0, plan.total_s / POINTS), self._n_live), name="watch"),
                tasks.create_task(self._scrape_windows(), name="scrapes"),
                tasks.create_task(self._show_progress(), name="progress"),
            ]
            events = [tasks.create_task(work, name="event") for work in self._events()]
            with _interruptible(self._stop):
                await asyncio.wait(following, timeout=START_S + plan.total_s + END_S + DRAIN_S)
            for task in (*beside, *(events if self._is_stopped else ())):
                task.cancel()
        last = None if order.drain else await self._watch.scrape()
        return self._report(combined(self._made, len(self._windows)), first, last)

    def _events(self) -> Iterator[Coroutine[Any, Any, None]]:  # Any: Coroutine's own unused parameters
        if self._order.n_knocks:
            yield self._knock()
        if self._order.drain and self._order.own is not None:
            yield self._drain_gateway(self._order.own)

    def _stop(self) -> None:
        """Ctrl-C: the clients end now, and what they have is reported."""
        self._is_stopped = True
        for crew in self._made:
            crew.stop()

    def _n_live(self) -> int:
        return sum(crew.note.live for crew in self._made)

    async def _scrape_windows(self) -> None:
        for window in self._windows:
            await asyncio.sleep(max(0.0, self._began_s + window.from_s - time.monotonic()))
            before = await self._watch.scrape()
            await asyncio.sleep(max(0.0, self._began_s + window.until_s - time.monotonic()))
            self._pages.append((before, await self._watch.scrape()))

    async def _knock(self) -> None:
        """Once everybody is in, or should long have been."""
        await asyncio.sleep(max(0.0, self._began_s + self._windows[-1].from_s - time.monotonic()))
        n = self._order.plan.most
        while _sum(self._made, "seated") < n and time.monotonic() < self._began_s + self._windows[-1].until_s:
            await asyncio.sleep(PROGRESS_S / 4)
        self._knocks = await knock(self._order.url, self._order.key, self._order.tls, self._order.n_knocks)

    async def _drain_gateway(self, own: OwnGateway) -> None:
        await asyncio.sleep(max(0.0, self._began_s + self._order.plan.total_s - DRAIN_BEFORE_END_S - time.monotonic()))
        began_s, open_turns = time.monotonic(), _n_open(self._made)
        os.kill(own.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await own.process.wait()
        self._drain = Drain(open_turns=open_turns, lost=0, seconds=time.monotonic() - began_s, exit_code=own.process.returncode)

    async def _show_progress(self) -> None:
        is_terminal = sys.stderr.isatty()
        while True:
            await asyncio.sleep(PROGRESS_S if is_terminal else SLOW_PROGRESS_S)
            line = self._progress()
            print(f"\r{line:<110}" if is_terminal else line, end="" if is_terminal else "\n", file=sys.stderr, flush=True)

    def _progress(self) -> str:
        at_s = time.monotonic() - self._began_s
        samples = [sample for sample in self._watch.samples if sample.cpu_s is not None][-2:]
        use = ""
        if len(samples) == 2 and samples[0].cpu_s is not None and samples[1].cpu_s is not None:
            cpu = (samples[1].cpu_s - samples[0].cpu_s) / max(0.001, samples[1].at_s - samples[0].at_s)
            use = f"; gateway {cpu:.0%} of a core, {(samples[1].rss_bytes or 0) / 1e6:.0f} MB"
        n_errors = sum(crew.note.n_errors for crew in self._made)
        lag_ms = max((crew.note.lag_ms for crew in self._made), default=0.0)
        return (
            f"{left(at_s, self._order.plan.total_s)}: {self._n_live()} guests, {_n_ended(self._made)} turns, "
            f"{_sum(self._made, 'late_frames')} late frames, {n_errors} errors{use}; client lag {lag_ms:.0f} ms"
        )

    def _report(self, found: Combined, first: Scrape | None, last: Scrape | None) -> Report:
        order, plan, samples = self._order, self._order.plan, self._watch.samples
        if found.n_missing == len(self._made):
            raise ConnectFailed("no client process came to its end; see what they said above")
        pages = [*self._pages, *[(None, None)] * len(self._windows)]
        n = len(self._made)
        stretches = [
            stretch(window, tally, samples, pages[number], client_use(found.cpu_s[number], window.until_s - window.from_s, n, tally))
            for number, (window, tally) in enumerate(zip(self._windows, found.windows, strict=True))
        ]
        tally = merged([*found.windows, found.outside])
        whole_window = Window(label="all", from_s=0.0, until_s=max(plan.total_s, samples[-1].at_s if samples else 0.0))
        inside_s = sum(window.until_s - window.from_s for window in self._windows)
        whole = stretch(whole_window, tally, samples, (first, last), client_use(sum(found.cpu_s), inside_s, n, tally))
        is_level = plan.curve == "steps" and len(plan.steps) == 1
        level = [sample for sample in samples if self._windows[-1].from_s <= sample.at_s <= self._windows[-1].until_s] if is_level else []
        return Report(
            url=order.url,
            engines=order.engines,
            plan=plan,
            machine=machine(),
            wall_s=time.monotonic() - self._began_s,
            whole=whole,
            windows=stretches,
            samples=thinned(samples),
            rss_slope_kb_per_min=slope_per_min([(s.at_s, None if s.rss_bytes is None else s.rss_bytes / 1024) for s in level]),
            files_slope_per_min=slope_per_min([(s.at_s, s.n_files) for s in level]),
            gateway_errors=_new_errors(first, last),
            knocks=self._knocks,
            drain=None if self._drain is None else _with_lost(self._drain, tally.counts.get("lost", 0)),
            notes=[*self._notes(found, stretches), *notes_on(tally.errors)],
        )

    def _notes(self, found: Combined, stretches: Sequence[Stretch]) -> list[str]:
        notes = []
        if self._is_stopped:
            notes.append("Stopped before its end.")
        if found.n_missing:
            notes.append(f"{found.n_missing} of {len(self._made)} client processes ended without a result: their guests are missing.")
        late = [found.label for found in stretches if found.client.is_late]
        if late:
            notes.append(f"The client itself was late or busy with {', '.join(late)} guests: those times include its own. See --clients.")
        if self._watch.fault is not None and not self._order.drain:
            notes.append(self._watch.fault)
        return notes


def notes_on(errors: Mapping[str, int]) -> list[str]:
    """What to do about refusals that a newcomer meets."""
    return ["The gateway wants a key: --key, or the variable STRETTO_KEY."] if errors.get("unauthorized") else []


def left(at_s: float, total_s: float) -> str:
    """What is left of a load at its second `at_s`: of the start, of the talking, or of the time in which replies under way may end."""
    if at_s < 0:
        return f"begins in {math.ceil(-at_s)} s"
    if at_s < total_s:
        return f"{math.ceil(total_s - at_s)} s of {total_s:.0f} left"
    return f"last replies end, within {max(0, math.ceil(total_s + END_S - at_s))} s"


def _sum(made: Sequence[CrewProcess], name: str) -> int:
    return sum(crew.note.so_far.get(name, 0) for crew in made)


def _n_ended(made: Sequence[CrewProcess]) -> int:
    return sum(_sum(made, name) for name in TURN_ENDS)


def _n_open(made: Sequence[CrewProcess]) -> int:
    return _sum(made, "started") - _n_ended(made)


def _new_errors(first: Scrape | None, last: Scrape | None) -> dict[str, int]:
    """What the gateway counted during the load, by code."""
    if first is None or last is None:
        return {}
    before = first.values.get("stretto_errors_total", {})
    grown = {key.removeprefix("code="): int(n - before.get(key, 0)) for key, n in last.values.get("stretto_errors_total", {}).items()}
    return {code: n for code, n in sorted(grown.items()) if n}


def _with_lost(drain: Drain, lost: int) -> Drain:
    return Drain(open_turns=drain.open_turns, lost=lost, seconds=drain.seconds, exit_code=drain.exit_code)


@contextlib.contextmanager
def _interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop` within the block."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except NotImplementedError:  # Windows
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
