"""What traces cost: CPU of a gateway per turn with a collector beside it, against the same gateway without, in turns, in one run.

    python -m tests.load.tracing_bench [--turns 400] [--rounds 4]

Scripted engines; replies are stopped after their first segment. Prints each round's milliseconds of CPU per turn and the ratio, and then
what a tracer alone takes for a turn: on the loop, and in all with its thread (a busy machine hides that in the ratio's noise).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
import urllib.request

from msgspec import structs
from prometheus_client import CollectorRegistry

from gateway.config import TracingSettings
from gateway.metrics import Metrics
from gateway.tracing import Tracer
from tests.protocol.peer import peer
from tests.running import Running, gateway
from tests.unit.test_tracing import SPOKEN

SETTINGS = {
    "STRETTO_FAKE__TTFT_MS": "1",
    "STRETTO_FAKE__ITL_MS": "1",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "1",
    "STRETTO_FAKE__TTS_RTF": "0.001",
    "STRETTO_LOG__LEVEL": "error",
}
TALKERS = 8
COLLECTOR = """
import sys, threading
from tests.doubles.collector import collector
with collector() as double:
    print(double.url, flush=True)
    sys.stdin.read()
"""


def cpu_s(running: Running) -> float:
    """CPU seconds of the gateway's process so far."""
    with urllib.request.urlopen(f"{running.http_url}/metrics", timeout=10) as response:
        found = re.search(r"^process_cpu_seconds_total (\S+)", response.read().decode(), re.MULTILINE)
    assert found is not None, "prometheus-client tells the process's CPU on Linux"
    return float(found[1])


async def talk(running: Running, n_turns: int) -> None:
    """One talker: each reply is stopped as soon as all of it has been sent."""
    async with peer(running.voice_url, start={}) as client:
        for number in range(1, n_turns + 1):
            await client.send(type="text", text="What is down there?")
            await client.until("turn.started", turn=number)
            await client.until("segment.done", turn=number, index=0)
            await client.send(type="cancel", turn=number)
            await client.until("interrupted", turn=number)
            await client.send(type="playout", turn=number, played_ms=200, final=True)
            await client.until("turn.done", turn=number)


async def per_turn_ms(running: Running, n_turns: int) -> float:
    """CPU milliseconds of one turn, over `n_turns`; what its threads do afterwards is waited for."""
    before = cpu_s(running)
    async with asyncio.TaskGroup() as talkers:
        for _ in range(TALKERS):
            talkers.create_task(talk(running, n_turns // TALKERS), name="talker")
    await asyncio.sleep(2.0)  # traces gather for a second
    return (cpu_s(running) - before) * 1000 / (n_turns // TALKERS * TALKERS)


def alone(url: str, n_turns: int = 2000) -> tuple[float, float]:
    """Milliseconds of CPU of one traced turn with two segments: in the thread that tells it, and in the whole process."""
    tracer = Tracer(TracingSettings(endpoint=url), Metrics(CollectorRegistry()), time.monotonic)
    in_loop, in_all = time.thread_time(), time.process_time()
    for number in range(n_turns):
        tracer.turn_ended(structs.replace(SPOKEN, turn=number))
    told_s = time.thread_time() - in_loop
    tracer.close()
    return told_s * 1000 / n_turns, (time.process_time() - in_all) * 1000 / n_turns


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    with subprocess.Popen([sys.executable, "-c", COLLECTOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as collecting:
        assert collecting.stdout is not None, "stdout is a pipe"
        url = collecting.stdout.readline().strip()
        with gateway(SETTINGS) as off, gateway(SETTINGS | {"STRETTO_TRACING__ENDPOINT": url}) as on:
            rows = []
            for number in range(options.rounds + 1):
                row = asyncio.run(per_turn_ms(off, options.turns)), asyncio.run(per_turn_ms(on, options.turns))
                if number:  # the first one warms both up
                    rows.append(row)
                    print(f"off {row[0]:.2f} ms  on {row[1]:.2f} ms  ratio {row[1] / row[0]:.3f}", flush=True)
        told_ms, all_ms = alone(url)
        collecting.communicate("")
    off_ms = statistics.median(off for off, _ in rows)
    print(f"a tracer alone: {told_ms:.3f} ms a turn on the loop, {all_ms:.3f} ms in all: {all_ms / off_ms:.1%} of a turn without it")
    print(f"CPU per turn, tracing on against off: median ratio {statistics.median(on / off for off, on in rows):.3f}")


if __name__ == "__main__":
    main()
