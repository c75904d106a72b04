"""Whether a gateway keeps something of conversations that are over: connect, talk, leave, again and again; half of them drop in mid-turn.

Run: `python -m tests.load.leak_check --cycles 500` (`make leaks`). Starts its own gateway with scripted engines and prints one JSON object:
open files, threads, tasks and sessions before and after, and the slope of its memory, garbage collected, over the last 60 % of the cycles.
Exit code 1 where something is not back, or the slope is over `MOST_KB_PER_CYCLE`. Takes about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import signal
import statistics
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from tests.protocol.peer import peer
from tests.running import Running, gateway

RESUME_S = 1  # how long a dropped conversation is kept; short, so that its end is seen
SETTINGS = {
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "1",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "1",
    "STRETTO_FAKE__TTS_RTF": "0.01",
    "STRETTO_FAKE__REPLY": "One moment. Here it is, and that is all.",
    "STRETTO_SESSION__RESUME_S": str(RESUME_S),
    "STRETTO_SESSION__LEAD_MS": "10000",  # nobody waits for speech to be played
    "STRETTO_LOG__LEVEL": "warning",
}
AT_ONCE = 4
BLOCK = 10  # cycles between two looks at the memory
SETTLED_SHARE = 0.4  # of the cycles come before the slope: pools, caches and counters fill
MOST_KB_PER_CYCLE = 1.0
CYCLE_S = 60.0
SETTLE_S = 60.0
LOOK_S = 0.1


class Look(Struct, frozen=True):
    """What the gateway process holds."""

    n_files: int
    n_threads: int
    n_tasks: int
    n_sessions: int
    n_connections: int
    rss_kb: int


@contextmanager
def counted_gateway() -> Iterator[Running]:
    """A gateway that tells its number of tasks."""
    with gateway(SETTINGS, module="tests.load.counted_gateway") as running:
        yield running


async def look(running: Running) -> Look:
    """Count now."""
    folder = Path(f"/proc/{running.process.pid}")
    metrics = await asyncio.to_thread(_metrics, running)  # first: its page is made in a thread that stays
    status = (folder / "status").read_text()
    return Look(
        n_files=len(list((folder / "fd").iterdir())),
        n_threads=_number(r"^Threads:\s+(\d+)", status),
        n_tasks=await _n_tasks(running),
        n_sessions=_number(r"^stretto_sessions (\d+)", metrics),
        n_connections=_number(r"^stretto_connections (\d+)", metrics),
        rss_kb=rss_kb(running),
    )


def rss_kb(running: Running) -> int:
    """Resident memory of the gateway."""
    return _number(r"^VmRSS:\s+(\d+)", Path(f"/proc/{running.process.pid}/status").read_text())


async def settled(running: Running, before: Look) -> Look:
    """A look when everything is back, or the last one after `SETTLE_S`."""
    ends_at = asyncio.get_running_loop().time() + SETTLE_S
    while True:
        after = await look(running)
        if is_back(before, after) or asyncio.get_running_loop().time() > ends_at:
            return after
        await asyncio.sleep(LOOK_S)


async def warm(running: Running) -> Look:
    """A look after the first conversations, when all of them are forgotten: what is made once is made by then."""
    await cycles(running, AT_ONCE)
    async with asyncio.timeout(SETTLE_S):
        while (seen := await look(running)).n_sessions or seen.n_connections:
            await asyncio.sleep(LOOK_S)
    await asyncio.sleep(LOOK_S)
    return await look(running)


def is_back(before: Look, after: Look) -> bool:
    """Whether no file, thread, task, session or connection more is held than before."""
    names = ("n_files", "n_threads", "n_tasks", "n_sessions", "n_connections")
    pairs = [(getattr(before, name), getattr(after, name)) for name in names]
    return all(now <= then for then, now in pairs)


async def cycles(running: Running, n: int, first: int = 0) -> None:
    """`n` conversations, `AT_ONCE` at a time; every second one drops in mid-turn."""
    numbers = iter(range(first, first + n))

    async def talk() -> None:
        for number in numbers:
            async with asyncio.timeout(CYCLE_S):
                await (dropped(running) if number % 2 else finished(running))

    async with asyncio.TaskGroup() as tasks:
        for place in range(AT_ONCE):
            tasks.create_task(talk(), name=f"talker {place}")


async def finished(running: Running) -> None:
    """A turn to its end, and a proper goodbye."""
    async with peer(running.voice_url, start={}) as client:
        await client.send(type="text", text="Hello?")
        done = await client.until("reply.done")
        await client.send(type="playout", turn=done["turn"], played_ms=1e6, final=True)
        await client.until("turn.done")


async def dropped(running: Running) -> None:
    """The line breaks while the reply is on its way."""
    async with peer(running.voice_url, start={}) as client:
        await client.send(type="text", text="Hello?")
        await client.until("audio")
        client.socket.transport.abort()


async def check(n_cycles: int) -> dict[str, object]:
    """All of it; the findings."""
    with counted_gateway() as running:
        before = await warm(running)
        memory = []
        for done in range(0, n_cycles, BLOCK):
            await cycles(running, min(BLOCK, n_cycles - done), done)
            await _n_tasks(running)  # collects
            memory.append((float(min(done + BLOCK, n_cycles)), float(rss_kb(running))))
        after = await settled(running, before)
    late = [point for point in memory if point[0] > n_cycles * SETTLED_SHARE]
    slope = statistics.linear_regression(*zip(*late, strict=True)).slope if len(late) > 1 else None
    return {
        "cycles": n_cycles,
        "before": asdict(before),
        "after": asdict(after),
        "is_back": is_back(before, after),
        "rss_kb_per_cycle": None if slope is None else round(slope, 2),
        "rss_slope_over_cycles": len(late) * BLOCK,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--cycles", type=int, default=500)
    found = asyncio.run(check(parser.parse_args().cycles))
    print(json.dumps(found, indent=1))
    slope = found["rss_kb_per_cycle"]
    if not found["is_back"]:
        sys.exit(f"leak: got {found['after']}, expected no more than {found['before']} but for memory")
    if isinstance(slope, float) and slope > MOST_KB_PER_CYCLE:
        sys.exit(f"leak: got {slope} KB a cycle, expected at most {MOST_KB_PER_CYCLE}")


def _metrics(running: Running) -> str:
    with urllib.request.urlopen(f"{running.http_url}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


async def _n_tasks(running: Running) -> int:
    n_lines = len(running.lines)
    running.process.send_signal(signal.SIGUSR1)
    async with asyncio.timeout(60):
        while True:
            for line in running.lines[n_lines:]:
                if line.startswith("tasks: "):
                    return int(line.removeprefix("tasks: "))
            await asyncio.sleep(0.01)


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise ValueError(f"nothing matches {pattern!r}")
    return int(found[1])


if __name__ == "__main__":
    main()
