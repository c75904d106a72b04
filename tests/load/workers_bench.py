"""The same crowd before one gateway process and before several: what more cores bring.

    python -m tests.load.workers_bench                     50, 100 and 200 talkers; 1 and 2 workers
    python -m tests.load.workers_bench -n 100 --workers 1 2 4

Fake engines, `stretto load` as its own process on the same machine: with two cores the crowd and the system take part of them, so read
the rows against each other, never alone. `share`: the gateway's own part of a wait, first chunk from the voice to its frame on the wire.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

STEP_S, SETTLE_S = 25.0, 8.0


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", "--talkers", default="50,100,200", help="at once; several: one step after the other")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    print(
        f"{'workers':>7} {'talkers':>7} {'share p50':>10} {'share p99':>10} {'late frames':>11} {'first audio p99':>15} {'gateway CPU':>11}"
    )
    for count in options.workers:
        for window in crowd(options.talkers, count)["windows"]:
            print(row(count, window), flush=True)


def crowd(talkers: str, workers: int) -> Any:  # Any: the report of `stretto load`
    """Its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "gateway", "load", "-n", talkers, "--step", str(STEP_S), "--settle", str(SETTLE_S)]
        environment = {**os.environ, "STRETTO_SERVER__WORKERS": str(workers)}
        subprocess.run([*command, "--json", str(report)], env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads(report.read_text("utf-8"))


def row(workers: int, window: Any) -> str:  # Any: one step of that report
    """One line; milliseconds, and cores."""
    times, gateway = window["times"], window["gateway"]
    share, first = times["own_first_audio"], times["first_audio"]
    cores = (gateway["cpu"] or 0) + (gateway["workers_cpu"] or 0)
    return (
        f"{workers:7} {window['guests']:7.0f} {share['p50']:10.1f} {share['p99']:10.1f} {window['late_share']:11.3%} "
        f"{first['p99']:15.0f} {cores:11.2f}"
    )


if __name__ == "__main__":
    main()
