"""One gateway with a slow engine, talked to by `stretto bench` and scraped by a real Prometheus, for all tests that look at them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.ops.prometheus import ROOT, RULE_FILES, Prometheus, configuration, prometheus, quickened
from tests.ops.tools import program
from tests.running import Running, gateway

KEY = "a-key-for-the-scrape"
SLOW_TTFT_MS = 900  # beyond both promises, 500 and 600 ms
RANGE_S, FOR_S = 10, 2
TALKERS = 12  # with short replies about 4 turns a second: 20 of them, as the alerts ask for, within the shortened range
SETTINGS = {
    "STRETTO_KEYS": KEY,
    "STRETTO_FAKE__TTFT_MS": str(SLOW_TTFT_MS),
    "STRETTO_FAKE__ITL_MS": "5",
    "STRETTO_FAKE__REPLY": "Yes. Of course.",
    "STRETTO_FAKE__TTS_RTF": "0.01",
    "STRETTO_SERVER__DRAIN_S": "0.5",
    "STRETTO_LOG__LEVEL": "error",
}


class Watched(Struct, frozen=True):
    """`talking_since`: monotonic, when the load began."""

    gateway: Running
    prometheus: Prometheus
    talking_since: float


def scrape(running: Running) -> str:
    """What Prometheus reads of this gateway."""
    request = urllib.request.Request(f"{running.http_url}/metrics", headers={"Authorization": f"Bearer {KEY}"})
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(response.read().decode())


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """The gateway under load, and its Prometheus with the shipped rules at a test's pace."""
    executable = program("prometheus", "Debian: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("prometheus")
    for path in RULE_FILES:
        (folder / path.name).write_text(quickened(path.read_text("utf-8"), RANGE_S, FOR_S), "utf-8")
    with gateway(SETTINGS) as running:
        config = configuration(folder, f"127.0.0.1:{running.port}", KEY)
        with prometheus(executable, config) as watching, _bench(running, folder) as since:
            yield Watched(running, watching, since)


@contextlib.contextmanager
def _bench(running: Running, folder: Path) -> Iterator[float]:
    """`stretto bench` until the block ends; yields when it began."""
    options = ["--key", KEY, "-n", str(TALKERS), "--think", "0.2", "--ramp", "1", "--seconds", "50", "--turns", "1000"]
    log = folder / "bench.log"
    with log.open("w") as stream:
        command = [sys.executable, "-m", "gateway", "bench", "--url", running.voice_url, *options]
        process = subprocess.Popen(command, cwd=ROOT, stdout=stream, stderr=stream)
    since = time.monotonic()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"the bench ended with {process.wait(1.5)}; it said:\n{log.read_text()[-2000:]}")
        yield since
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session")
def scraped(watched: Watched) -> str:
    """The gateway's metrics while it is talked to."""
    return scrape(watched.gateway)


@pytest.fixture(scope="session")
def vllm_metrics() -> str:
    """vLLM's metrics that rules and panels may name."""
    return (Path(__file__).parent / "data" / "vllm_metrics.prom").read_text("utf-8")
