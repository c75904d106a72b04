"""What the shared book of the keys costs at the door: `session.start` to `session.ready`, with it and without.

    python -m tests.load.quota_bench                 two workers, 400 conversations each way
    python -m tests.load.quota_bench -n 1000 --redis two workers with a redis-server of their own

On and off take turns, one conversation each, on the same gateway: a key with limits asks the book, one without does not, and everything
else is the same. `turn`: a text to `turn.started`, on the conversations just opened: it must not differ. Scripted engines.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import ExitStack

from tests.doubles.redis_server import redis_server
from tests.protocol.peer import peer
from tests.protocol.test_workers import QUICK
from tests.running import Running, gateway

KEYS = {"with the book": "bounded-key", "without": "main"}
LIMITS = {
    **QUICK,
    "STRETTO_KEYS__BOUNDED__KEY": "bounded-key",
    "STRETTO_KEYS__BOUNDED__SESSIONS": "1000",
    "STRETTO_KEYS__BOUNDED__TURNS_PER_MIN": "1000000",
}


async def measure(running: Running, count: int) -> None:
    """Open, have a turn begun, close; print what it took."""
    doors: dict[str, list[float]] = {name: [] for name in KEYS}
    turns: dict[str, list[float]] = {name: [] for name in KEYS}
    for _ in range(count):
        for name, key in KEYS.items():
            async with peer(running.voice_url, key=key) as client:
                began = time.perf_counter()
                await client.send(type="session.start", output="text")
                await client.until("session.ready")
                doors[name].append(time.perf_counter() - began)
                began = time.perf_counter()
                await client.send(type="text", text="Hello?")
                await client.until("turn.started")
                turns[name].append(time.perf_counter() - began)
                await client.socket.close(1000)
    print(f"{'ms':14} {'door p50':>9} {'door p99':>9} {'turn p50':>9} {'turn p99':>9}")
    for name in KEYS:
        print(f"{name:14} " + " ".join(f"{1000 * at(times[name], share):9.2f}" for times in (doors, turns) for share in (0.5, 0.99)))


def at(times: list[float], share: float) -> float:
    """A percentile."""
    return sorted(times)[min(len(times) - 1, round(share * len(times)))]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--count", type=int, default=400, help="conversations each way")
    parser.add_argument("--redis", action="store_true", help="the book in Redis, not with the parent")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        store = {"STRETTO_SESSION__STORE_URL": stack.enter_context(redis_server()).url} if options.redis else {}
        asyncio.run(measure(stack.enter_context(gateway({**LIMITS, **store}, "--workers", "2")), options.count))


if __name__ == "__main__":
    main()
