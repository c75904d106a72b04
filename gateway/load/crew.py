"""A client process of a load: runs its share of the guests and tells what they met, a JSON line a second, and all of it at the end.

Started by `crews`; the first line of its stdin is an `Errand`, the end of its stdin an order to stop.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from gateway.bench.measuring import own_cpu_s
from gateway.load.guest import Guest, Place
from gateway.load.microphone import from_wav, synthetic
from gateway.load.plan import MOST_VISITS, Plan, Visit, visits, windows
from gateway.load.tally import Tally, empty

CONNECT_AT_ONCE = 20  # of one process: a gateway's accept queue is not what a load measures
TELL_S = 1.0
LAG_TICK_S = 0.02
END_S = 60.0  # after the last visit should have ended: turns under way finish


class Errand(Struct, frozen=True, kw_only=True):
    """What one process is to do: every `n_crews`-th visit of the plan from `crew` on. `began_s`: monotonic time of the load's second 0."""

    plan: Plan
    url: str
    began_s: float
    crew: int = 0
    n_crews: int = 1
    insecure: bool = False
    speech: str = ""


class Note(Struct, kw_only=True, tag="note"):
    """What a process tells while it runs."""

    live: int
    so_far: dict[str, int]
    n_errors: int
    cpu_s: float
    lag_ms: float


class Result(Struct, kw_only=True, tag="result"):
    """What it tells at the end. `outside`: what fell into no window."""

    windows: list[Tally]
    outside: Tally
    cpu_s: list[float]


class Chair(Struct):
    """Who sits there now."""

    guest: Guest | None = None


class Crew:
    """Runs one errand."""

    def __init__(self, errand: Errand, key: str | None) -> None:
        self._errand = errand
        self._windows = windows(errand.plan)
        self._tallies = [empty() for _ in self._windows]
        self._cpu_s = [0.0 for _ in self._windows]
        self._outside = empty()
        self._now = self._outside
        self._n_live = 0
        self._lag_ms = 0.0
        self._place = Place(errand.url, key, _tls(errand))
        self._speech = from_wav(Path(errand.speech)) if errand.speech else synthetic()

    async def run(self, stop: asyncio.Event) -> Result:
        """All its visits; ends early when `stop` is set."""
        door = asyncio.Semaphore(CONNECT_AT_ONCE)
        mine = visits(self._errand.plan)[self._errand.crew :: self._errand.n_crews]
        async with asyncio.TaskGroup() as tasks:
            own = [
                tasks.create_task(self._follow_windows(), name="windows"),
                tasks.create_task(self._watch_own_loop(), name="lag"),
                tasks.create_task(self._tell(), name="progress"),
            ]
            guests = {}
            for visit in mine:
                chair = Chair()
                guests[tasks.create_task(self._host(visit, chair, door), name=f"guest {visit.number}")] = chair
            stopping = tasks.create_task(stop.wait(), name="stop")
            over_s = self._errand.began_s + self._errand.plan.total_s + END_S - time.monotonic()
            everyone = tasks.create_task(_all_of(guests), name="everyone")
            await asyncio.wait([everyone, stopping], timeout=over_s, return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                self._count_overdue([chair.guest for task, chair in guests.items() if not task.done()])
            for task in (*guests, *own, stopping, everyone):
                task.cancel()
        return Result(windows=self._tallies, outside=self._outside, cpu_s=self._cpu_s)

    def _count_overdue(self, guests: list[Guest | None]) -> None:
        """Whoever is still there long after the end waits for something that does not come."""
        for guest in guests:
            self._outside.error("overdue")
            self._outside.count("lost", 0 if guest is None else guest.n_open)

    async def _host(self, visit: Visit, chair: Chair, door: asyncio.Semaphore) -> None:
        errand = self._errand
        await asyncio.sleep(max(0.0, errand.began_s + visit.from_s - time.monotonic()))
        self._n_live += 1
        try:
            while True:
                guest = chair.guest = Guest(visit, errand.plan, self._place, self._speech, door, lambda: self._now, errand.began_s)
                is_content = await guest.stay()
                if not (errand.plan.again and is_content) or time.monotonic() >= errand.began_s + visit.until_s:
                    return
                visit = structs.replace(visit, number=visit.number + MOST_VISITS)
        finally:
            self._n_live -= 1

    async def _follow_windows(self) -> None:
        """Count into the window that the time is in."""
        for number, window in enumerate(self._windows):
            await asyncio.sleep(max(0.0, self._errand.began_s + window.from_s - time.monotonic()))
            self._now, before_s = self._tallies[number], own_cpu_s()
            await asyncio.sleep(max(0.0, self._errand.began_s + window.until_s - time.monotonic()))
            self._now, self._cpu_s[number] = self._outside, own_cpu_s() - before_s

    async def _watch_own_loop(self) -> None:
        """How late this process itself is: its guests' figures include that."""
        while True:
            due_s = time.monotonic() + LAG_TICK_S
            await asyncio.sleep(LAG_TICK_S)
            lag_ms = max(0.0, (time.monotonic() - due_s) * 1000)
            self._now.time("client_lag", lag_ms)
            self._lag_ms = max(self._lag_ms, lag_ms)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            counts: dict[str, int] = {}
            for tally in (*self._tallies, self._outside):
                for name, n in tally.counts.items():
                    counts[name] = counts.get(name, 0) + n
            n_errors = sum(sum(tally.errors.values()) for tally in (*self._tallies, self._outside))
            _say(Note(live=self._n_live, so_far=counts, n_errors=n_errors, cpu_s=own_cpu_s(), lag_ms=self._lag_ms))
            self._lag_ms = 0.0


async def _all_of(tasks: Iterable[asyncio.Task[None]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


def _tls(errand: Errand) -> ssl.SSLContext | None:
    if not errand.url.startswith("wss:"):
        return None
    context = ssl.create_default_context()
    if errand.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _say(what: Note | Result) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:  # whoever asked has gone; the end of stdin stops us
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


async def _main() -> None:
    errand = msgspec.json.decode(sys.stdin.buffer.readline(), type=Errand)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_stdin() -> None:
        if not os.read(sys.stdin.fileno(), 1024):
            loop.remove_reader(sys.stdin.fileno())
            stop.set()

    loop.add_reader(sys.stdin.fileno(), on_stdin)
    _say(await Crew(errand, os.environ.get("STRETTO_LOAD_KEY")).run(stop))


def main() -> None:
    """The process; uvloop leaves more of its core to the guests."""
    try:
        import uvloop
    except ImportError:  # not on Windows
        asyncio.run(_main())
    else:
        uvloop.run(_main())
