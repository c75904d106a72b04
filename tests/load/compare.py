"""What a change costs or saves: two gateways of two commits side by side, under the same load at once.

    python -m tests.load.compare main~1                 # against this tree, as it lies here
    python -m tests.load.compare A B -n 100 --seconds 60

CPU seconds for each audio frame sent (scripted engines, pcm16, frames of 100 ms), and their ratio: what else runs on the machine meets both
alike. The clients are this tree's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.bench.own_gateway import own_gateway
from gateway.load.command import OWN_SETTINGS
from gateway.load.load import Load, Order
from gateway.load.plan import Plan
from gateway.load.report import Report

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-P", "-m", "gateway", "serve", "--engines", "fake", "--port", "0", "--host", "127.0.0.1")
SETTLE_S = 8.0


async def loaded(folder: Path, plan: Plan) -> Report:
    """The report of a gateway of that tree."""
    settings = OWN_SETTINGS | {"PYTHONPATH": str(folder), "STRETTO_SESSION__MAX_SESSIONS": str(plan.most + 8)}
    if not (folder / "gateway/shedding.py").exists():  # a commit from before knows no such setting
        del settings["STRETTO_SHEDDING__LAG_MS"]
    async with own_gateway(plan.most, COMMAND, settings) as own:
        order = Order(plan=plan, url=own.url, key=None, tls=None, engines="fake", n_crews=1, pid=own.pid, own=own)
        return await Load(order).run()


def cpu_us_per_frame(report: Report) -> float:
    """Of the measured window, in microseconds."""
    (window,) = report.windows
    assert window.gateway.cpu is not None, "a process on this machine is read in /proc"
    return window.gateway.cpu * (window.until_s - window.from_s) * 1e6 / window.counts["audio_frames"]


async def both(one: Path, other: Path, plan: Plan) -> tuple[Report, Report]:
    """At once."""
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(loaded(one, plan), name="one")
        second = tasks.create_task(loaded(other, plan), name="other")
    return first.result(), second.result()


@contextmanager
def tree(ref: str | None) -> Iterator[Path]:
    """The files of a commit; None: this tree."""
    if ref is None:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "tree"
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", made, ref], check=True)
        try:
            yield made
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", made], check=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", help="another one; default: this tree")
    parser.add_argument("-n", type=int, default=50, help="guests of each gateway (default 50)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of measuring (default 30)")
    args = parser.parse_args()
    plan = Plan(steps=(args.n,), step_s=SETTLE_S + args.seconds, settle_s=SETTLE_S, think_s=0.5)
    with tree(args.before) as one, tree(args.after) as other:
        before, after = asyncio.run(both(one, other, plan))
    print(f"{args.n} guests each, {args.seconds:.0f} s, load average {os.getloadavg()[0]:.1f}")
    for name, report in ((args.before, before), (args.after or "this tree", after)):
        (window,) = report.windows
        own, n = window.times.get("own_first_audio"), window.counts["audio_frames"]
        share = "-" if own is None else f"{own.p50:.2f} / {own.p99:.2f} ms"
        print(f"{name:<12} {cpu_us_per_frame(report):7.1f} us of CPU an audio frame ({n}); chunk -> first audio p50 / p99 {share}")
    print(f"ratio {cpu_us_per_frame(after) / cpu_us_per_frame(before):.3f}")


if __name__ == "__main__":
    main()
