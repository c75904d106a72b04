"""Where it is played: which gateway runs, who talks, and the faults in their order."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.chaos.crowd import PHRASE, Person, crowd, typists
from tests.chaos.cutter import Cutter
from tests.chaos.ends import terminated, terminated_twice
from tests.chaos.faults import Fault, Found, nobody, of
from tests.chaos.processes import Do, children
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
TURN_S = 3.0  # a turn and its pause: within it everybody asks
TRIES = 8
FAKETIME = "faketime/libfaketime.so.1"

Stage = Callable[[Found, int], Awaitable[None]]


def library() -> Path:
    """What moves the wall clock of one process. Skips the test loudly where it is missing."""
    found = next((path for folder in Path("/usr/lib").glob("*-linux-gnu*") if (path := folder / FAKETIME).exists()), None)
    if found is None:
        missing("libfaketime is missing (Debian: apt-get install faketime)")
    return found


def watched(folder: Path, clock: Path) -> dict[str, str]:
    """Settings of a gateway that keeps what is said in `folder`, and whose wall clock `clock` moves."""
    return {
        "STRETTO_CAPTURE__FOLDER": str(folder / "kept"),
        "STRETTO_CAPTURE__ALL": "true",
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def judged(running: Running, n_back: int, n_cut: int) -> list[str]:
    """What is wrong when all that is `around` has been played."""
    wrong = []
    if n_back < n_cut:
        wrong.append(f"sockets cut: {n_back} of {n_cut} resumed")
    if not names_what_blocked(running):
        wrong.append("event loop blocked: the log does not name what blocked it")
    return wrong


def names_what_blocked(running: Running) -> bool:
    """Whether the log does."""
    return any("block_the_loop" in line for line in running.lines)


async def engines_break(found: Found, n_people: int) -> None:
    """Scripted engines, sockets, disk, clock and loop, in one process."""
    with tempfile.TemporaryDirectory(prefix="stretto-chaos-") as name:
        folder, clock = Path(name), Path(name) / "clock"
        clock.write_text("+0")
        settings = SETTINGS | watched(folder, clock) | {"STRETTO_CACHE_DIR": name, "STRETTO_TTS__PHRASES": f'["{PHRASE}"]'}
        with gateway(settings, module="tests.chaos.gateway", takes_orders=True) as running:
            cutter = Cutter(running.port)
            async with (
                cutter.running() as cut_url,
                crowd(typists(running.voice_url, n_people, cut_url=cut_url, n_cut=n_people // 5)) as people,
            ):
                for fault in [*scripted(running), *around(running, cutter, clock, folder, n_people // 5)]:
                    await found.play(people, fault, f"{running.http_url}/metrics")
                n_back = sum(person.n_resumes > 0 for person in people.people)
        found.blame(judged(running, n_back, n_people // 5))


def ordered(running: Running, line: str) -> Do:
    """Tell the gateway."""

    async def give() -> None:
        running.order(line)

    return give


def scripted(running: Running) -> list[Fault]:
    """What scripted engines can do wrong."""
    asks_model, asks_voice = of("talker", "reader"), of("talker", "sayer")
    return [
        Fault(
            name="model killed",
            begin=ordered(running, "model dies"),
            end=ordered(running, "model lives"),
            concerns=asks_model,
            metric="stretto_llm_errors_total",
        ),
        Fault(
            name="model stalls",
            begin=ordered(running, "model stalls"),
            end=ordered(running, "model lives"),
            lasts_s=STALLED_S + TURN_S,
            deadline_s=STALLED_S,
            concerns=asks_model,
            metric="stretto_llm_errors_total",
        ),
        Fault(
            name="voice stalls",
            begin=ordered(running, "voice stalls"),
            end=ordered(running, "voice lives"),
            lasts_s=STALLED_S + TURN_S,
            deadline_s=STALLED_S,
            concerns=asks_voice,
            metric="stretto_tts_errors_total",
        ),
    ]


def around(running: Running, cutter: Cutter, clock: Path, folder: Path, n_cut: int, voice_fails_s: float = 3) -> list[Fault]:
    """What goes wrong around engines of any kind: some failing texts, sockets, the loop, the disk, the clock."""

    async def cut() -> None:
        cutter.cut()

    async def block() -> None:
        for _ in range(TRIES):  # where others block the loop as well, not each time is told
            running.order("loop blocks 0.4")
            await asyncio.sleep(1)
            if names_what_blocked(running):
                return

    async def fill_the_disk() -> None:
        for kept in (folder / "phrases").glob("*"):
            kept.unlink()  # so that it would be written again
        running.order("disk full")

    def move_the_clock(offset: str) -> Do:
        async def move() -> None:
            await asyncio.to_thread(clock.write_text, offset)

        return move

    return [
        Fault(
            name="every fifth text fails in the voice",
            begin=ordered(running, "voice fails 0.2"),
            end=ordered(running, "voice lives"),
            lasts_s=voice_fails_s,
            concerns=of("talker", "sayer"),
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
            begin=block,
            concerns=nobody,
            metric="stretto_loop_stalls_total",
            is_told=False,
        ),
        Fault(
            name="disk full",
            begin=fill_the_disk,
            end=ordered(running, "disk free"),
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
        async with crowd(typists(running.voice_url, n_people)) as people:
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


async def told_twice(found: Found, n_people: int) -> None:
    """A second SIGTERM does not wait for replies."""
    with gateway(SETTINGS) as running:
        async with crowd(typists(running.voice_url, n_people)) as people:
            await terminated_twice(found, people, running)
