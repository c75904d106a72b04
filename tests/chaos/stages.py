"""Where it is played: which gateway runs, who talks, and the faults in their order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.crowd import PHRASE, Crowd, Cutter, Person, crowd
from tests.chaos.faults import Fault, Row, nobody, of, strike, verdicts
from tests.doubles.redis_server import RedisServer, redis_server
from tests.ops.tools import missing
from tests.running import Running, gateway

STALLED_S = 2.0  # far above what a busy machine needs between two tokens
SETTINGS = {
    "STRETTO_FAKE__REPLY": "The sea is deep. It is cold.",
    "STRETTO_FAKE__TTFT_MS": "100",
    "STRETTO_SESSION__MAX_SESSIONS": "200",
    "STRETTO_SHEDDING__TTFT_MS": "0",  # a stalled model is what is played
    "STRETTO_TURN__NEXT_DELTA_S": f"{STALLED_S}",
    "STRETTO_TURN__FIRST_DELTA_S": f"{STALLED_S}",
    "STRETTO_TURN__FIRST_CHUNK_S": f"{STALLED_S}",
    "STRETTO_SERVER__DRAIN_S": "15",
}
FAKETIME = "faketime/libfaketime.so.1"

Report = Callable[[Row], None]
Stage = Callable[["Found", int], Awaitable[None]]


class Found:
    """Rows and what is wrong with them."""

    def __init__(self, report: Report) -> None:
        self.rows: list[Row] = []
        self.wrong: list[str] = []
        self._report = report

    async def play(self, people: Crowd, fault: Fault, metrics_url: str) -> None:
        """One fault."""
        row = await strike(people, fault, metrics_url)
        self.add(row, verdicts(row, fault))

    def add(self, row: Row, wrong: list[str]) -> None:
        self.rows.append(row)
        self.wrong += wrong
        self._report(row)


def library() -> Path:
    """What moves the wall clock of one process. Skips the test loudly where it is missing."""
    found = next((path for folder in Path("/usr/lib").glob("*-linux-gnu*") if (path := folder / FAKETIME).exists()), None)
    if found is None:
        missing("libfaketime is missing (Debian: apt-get install faketime)")
    return found


async def engines_break(found: Found, n_people: int) -> None:
    """Scripted engines, sockets, disk, clock and loop, in one process."""
    with tempfile.TemporaryDirectory(prefix="stretto-chaos-") as name:
        folder, clock = Path(name), Path(name) / "clock"
        clock.write_text("+0")
        settings = SETTINGS | {
            "STRETTO_CACHE_DIR": name,
            "STRETTO_TTS__PHRASES": f'["{PHRASE}"]',
            "STRETTO_CAPTURE__FOLDER": str(folder / "kept"),
            "STRETTO_CAPTURE__ALL": "true",
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(clock),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
        with gateway(settings, module="tests.chaos.gateway", takes_orders=True) as running:
            cutter = Cutter(running.port)
            async with cutter.running() as cut_url, crowd(running.voice_url, n_people, cut_url=cut_url, n_cut=n_people // 5) as people:
                for fault in broken(running, cutter, clock, folder, n_people // 5):
                    await found.play(people, fault, f"{running.http_url}/metrics")
                n_back = sum(person.n_resumes > 0 for person in people.people)
        if n_back < n_people // 5:
            found.wrong.append(f"sockets cut: {n_back} of {n_people // 5} resumed")
        if not any("block_the_loop" in line for line in running.lines):
            found.wrong.append("event loop blocked: the log does not name what blocked it")


def broken(running: Running, cutter: Cutter, clock: Path, folder: Path, n_cut: int) -> list[Fault]:
    """The faults of one process."""

    def order(*lines: str) -> Callable[[], Awaitable[None]]:
        async def give() -> None:
            for line in lines:
                running.order(line)

        return give

    async def cut() -> None:
        cutter.cut()

    async def fill_the_disk() -> None:
        for kept in (folder / "phrases").glob("*"):
            kept.unlink()  # so that it would be written again
        running.order("disk full")

    def move_the_clock(offset: str) -> Callable[[], Awaitable[None]]:
        async def move() -> None:
            await asyncio.to_thread(clock.write_text, offset)

        return move

    asks_model, asks_voice = of("talker", "reader"), of("talker", "sayer")
    return [
        Fault(
            name="model killed", begin=order("model dies"), end=order("model lives"), concerns=asks_model, metric="stretto_llm_errors_total"
        ),
        Fault(
            name="model stalls",
            begin=order("model stalls"),
            end=order("model lives"),
            lasts_s=STALLED_S + 1.5,
            deadline_s=STALLED_S,
            concerns=asks_model,
            metric="stretto_llm_errors_total",
        ),
        Fault(
            name="every fifth text fails in the voice",
            begin=order("voice fails 0.2"),
            end=order("voice lives"),
            lasts_s=3,
            concerns=asks_voice,
            metric="stretto_tts_errors_total",
        ),
        Fault(
            name="voice stalls",
            begin=order("voice stalls"),
            end=order("voice lives"),
            lasts_s=STALLED_S + 1.5,
            deadline_s=STALLED_S,
            concerns=asks_voice,
            metric="stretto_tts_errors_total",
        ),
        Fault(
            name="sockets cut at any byte",
            begin=cut,
            concerns=lambda p: p.number < n_cut,
            metric="stretto_sessions_resumed_total",
            is_told=False,
        ),
        Fault(
            name="event loop blocked for 0.4 s",
            begin=order("loop blocks 0.4"),
            concerns=nobody,
            metric="stretto_loop_stalls_total",
            is_told=False,
        ),
        Fault(
            name="disk full",
            begin=fill_the_disk,
            end=order("disk free"),
            lasts_s=3,
            concerns=nobody,
            metric='stretto_captures_total{outcome="line_dropped"}',
            is_told=False,
        ),
        Fault(name="clock jumps an hour ahead", begin=move_the_clock("+1h"), lasts_s=2, concerns=nobody, metric="", is_told=False),
        Fault(name="clock jumps two hours back", begin=move_the_clock("-1h"), lasts_s=2, concerns=nobody, metric="", is_told=False),
    ]


async def processes_die(found: Found, n_people: int) -> None:
    """Two workers that share a Redis: Redis, a worker, and then all of them on purpose."""
    with redis_server() as redis, gateway({**SETTINGS, "STRETTO_SESSION__STORE_URL": redis.url}, "--workers", "2") as running:
        url = f"{running.http_url}/metrics"
        async with crowd(running.voice_url, n_people) as people:
            await found.play(people, redis_dies(redis), url)
            cut_off: set[int] = set()
            died_s = people.now()

            async def kill_one() -> None:
                os.kill(children(running.process.pid)[0], signal.SIGKILL)

            fault = Fault(
                name="one of two workers killed",
                begin=kill_one,
                concerns=lambda person: person.number in cut_off or _was_cut(person, died_s, cut_off),
                metric="stretto_worker_restarts",
                is_told=False,
            )
            await found.play(people, fault, url)
            await terminated(found, people, running)


def _was_cut(person: Person, since_s: float, cut_off: set[int]) -> bool:
    """Whose socket went with the worker: their conversation goes on from the store, their reply is lost and told to be."""
    is_cut = person.n_resumes > 0 or any(s.kind == "lost" and s.at_s > since_s for s in person.seen)
    if is_cut:
        cut_off.add(person.number)
    return is_cut


def redis_dies(redis: RedisServer) -> Fault:
    async def kill() -> None:
        await asyncio.to_thread(redis.kill)

    async def start() -> None:
        await asyncio.to_thread(redis.start)

    return Fault(
        name="session store killed", begin=kill, end=start, lasts_s=2, concerns=nobody, metric="stretto_store_errors_total", is_told=False
    )


async def terminated(found: Found, people: Crowd, running: Running) -> None:
    """SIGTERM while all talk: replies come to their end, then everybody is told."""
    from_s = people.now()
    running.process.send_signal(signal.SIGTERM)
    status = await asyncio.to_thread(running.process.wait, 30)
    exited_s = people.now()
    await all_told(people, from_s)
    ends = [s for s in people.seen(from_s, exited_s + 1, "ended") if s.asked_s < from_s]
    lost = [s for s in ends if s.word != "completed"]
    told = people.seen(from_s, people.now(), "told", "lost")
    waits = [1000 * (s.at_s - max(from_s, s.since_s)) for s in told if s.kind == "told"]
    row = Row(
        name="SIGTERM under load",
        n_told=len({s.who for s in told}),
        told_ms=max(waits, default=None),
        n_disturbed=len(lost),
        recovered_s=exited_s - from_s,
        metric="",
        counted=0,
    )
    wrong = [f"SIGTERM: {len(lost)} replies were cut"] if lost else []
    found.add(row, wrong + ([f"SIGTERM: the gateway ended with {status}"] if status else []))


async def told_twice(found: Found, n_people: int) -> None:
    """A second SIGTERM does not wait for replies."""
    with gateway(SETTINGS) as running:
        async with crowd(running.voice_url, n_people) as people:
            from_s = people.now()
            running.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.5)
            running.process.send_signal(signal.SIGTERM)
            second_s = people.now()
            status = await asyncio.to_thread(running.process.wait, 30)
            exited_s = people.now()
            await all_told(people, from_s)
            told = people.seen(from_s, people.now(), "told", "lost")
    row = Row(
        name="a second SIGTERM",
        n_told=len({s.who for s in told}),
        told_ms=None,
        n_disturbed=0,
        recovered_s=exited_s - second_s,
        metric="",
        counted=0,
    )
    found.add(row, [f"second SIGTERM: the gateway ended with {status}"] if status else [])


async def all_told(people: Crowd, from_s: float) -> None:
    """Clients look for another gateway for some seconds before they give a conversation up."""
    ends_at = people.now() + 10
    while people.now() < ends_at and len({s.who for s in people.seen(from_s, people.now(), "told", "lost")}) < len(people.people):
        await asyncio.sleep(0.1)


def children(pid: int, wanted: str = "") -> list[int]:
    """Its child processes, and theirs, whose command line holds `wanted`."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
            if re.search(wanted, command):
                found.append(child)
            found += children(child, wanted)
    return found
