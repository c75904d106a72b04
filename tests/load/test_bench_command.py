"""`stretto bench --engines fake` as a user runs it: own gateway process, real sockets, figures that hang together. No speed is asserted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def bench(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "bench", "--engines", "fake", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env={**os.environ, **(environment or {})}, check=False)


def test_fake_engines_give_every_figure(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    reply = {"STRETTO_FAKE__REPLY": "Short and sweet. That is all."}
    done = bench("-n", "3", "--turns", "2", "--seconds", "20", "--think", "0.2", "--ramp", "0.5", "--json", str(figures), environment=reply)
    assert done.returncode == 0, done.stderr
    assert "own share: delta -> segment frame" in done.stdout
    found = json.loads(figures.read_text())
    assert (found["n_turns"], found["n_failed"], found["faults"]) == (6, 0, {})
    times = found["times"]
    for row in ("ttft", "first_segment", "first_audio", "own_first_audio"):
        assert times[row]["n"] == 6, row
    assert times["first_audio"]["p50"] > times["first_segment"]["p50"] > times["ttft"]["p50"] > 0
    assert 0 < times["own_segment"]["p50"] < times["first_segment"]["p50"]
    assert times["own_audio"]["n"] > times["own_first_audio"]["n"]
    assert 0.5 < found["wire_share_of_json"] < 1
    assert found["wire_bytes"] > 6 * 1000 * 48, "over a second of pcm16 in each turn"
    if sys.platform == "linux":
        assert found["load"]["gateway_cpu"] > 0
        assert found["load"]["gateway_rss_bytes"] > 10_000_000


def test_json_alone_is_printed_alone() -> None:
    done = bench("--turns", "1", "--think", "0", "--ramp", "0", "--text-only", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["n_turns"] == 1
    assert found["n_audio_frames"] == 0


def test_a_gateway_that_cannot_start_is_explained() -> None:
    done = bench("--turns", "1", environment={"STRETTO_SERVER__PROT": "1"})
    assert done.returncode == 3
    assert "the gateway did not start; it said: settings: unknown key server.prot" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_gateway_process_is_left_behind() -> None:
    mark = f"STRETTO_TEST_MARK={os.getpid()}"
    name, value = mark.split("=")
    done = bench("--turns", "1", "--think", "0", "--ramp", "0", "--text-only", environment={name: value})
    assert done.returncode == 0, done.stderr
    assert [process for process in Path("/proc").iterdir() if process.name.isdigit() and _carries(process, mark)] == []


def _carries(process: Path, mark: str) -> bool:
    try:
        return mark.encode() in (process / "environ").read_bytes()
    except OSError:
        return False
