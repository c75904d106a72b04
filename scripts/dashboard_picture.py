"""Draw the dashboard's panels from a running Prometheus into one PNG, for the documentation. Needs matplotlib, which Stretto does not.

python scripts/dashboard_picture.py http://127.0.0.1:9090 docs/dashboard.png --seconds 300
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

DASHBOARD = Path(__file__).parents[1] / "configs" / "grafana" / "dashboards" / "stretto.json"
SHOWN = (
    "Where the wait goes", "TTFT", "First segment", "First audio", "Talkers", "Turns by how they ended", "Punctuation hit rate",
    "Voices: segment to first chunk", "Event loop: how late it wakes, p99",
)  # fmt: skip
UNITS = {"s": "s", "ops": "per second", "percentunit": "share", "short": "", "bytes": "bytes"}
COLUMNS = 3


def samples(url: str, expression: str, since: float, until: float, step_s: float) -> list[dict[str, Any]]:  # Any: JSON
    """The series of one expression."""
    fields = {"query": expression, "start": str(since), "end": str(until), "step": str(step_s)}
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{urllib.parse.urlencode(fields)}", timeout=30) as response:
        return list(json.load(response)["data"]["result"])


def filled(expression: str, rate: str) -> str:
    """The expression with Grafana's variables filled in."""
    return expression.replace("$__rate_interval", rate).replace("$job", ".*").replace("$instance", ".*")


def draw(axes: Any, panel: dict[str, Any], url: str, options: argparse.Namespace) -> None:  # Any: matplotlib is not typed here
    """One panel."""
    until = options.until
    since = until - options.seconds
    stack: list[tuple[str, dict[float, float]]] = []
    for target in panel["targets"]:
        for series in samples(url, filled(target["expr"], options.rate), since, until, options.step):
            legend = target["legendFormat"]
            for name, value in series["metric"].items():
                legend = legend.replace("{{" + name + "}}", value)
            stack.append((legend, {float(at) - since: float(value) for at, value in series["values"] if math.isfinite(float(value))}))
    moments = sorted({at for _, points in stack for at in points})
    if panel["fieldConfig"]["defaults"].get("custom", {}).get("stacking"):
        axes.stackplot(
            moments, *[[points.get(at, 0.0) for at in moments] for _, points in stack], labels=[name for name, _ in stack], alpha=0.8
        )
    else:
        for name, points in stack:
            axes.plot(list(points), list(points.values()), label=name, linewidth=1.2)
    for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"][1:]:
        axes.axhline(step["value"], color=step["color"], linewidth=0.8, linestyle="--")
    axes.set_title(panel["title"], fontsize=9, loc="left")
    axes.set_ylabel(UNITS.get(panel["fieldConfig"]["defaults"]["unit"], ""), fontsize=7)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.25)
    if stack:
        axes.legend(fontsize=6, loc="best", framealpha=0.6)


def main() -> int:
    """Draw; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="Prometheus, as in http://127.0.0.1:9090")
    parser.add_argument("file", type=Path, help="the PNG")
    parser.add_argument("--seconds", type=float, default=300.0, help="how far back (default 300)")
    parser.add_argument("--until", type=float, default=time.time(), help="up to when, seconds since 1970 (default now)")
    parser.add_argument("--step", type=float, default=2.0, help="seconds between points (default 2)")
    parser.add_argument("--rate", default="20s", help="the interval of rates (default 20s)")
    options = parser.parse_args()
    panels = {panel["title"]: panel for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]}
    rows = math.ceil(len(SHOWN) / COLUMNS)
    figure, grid = plt.subplots(rows, COLUMNS, figsize=(4.2 * COLUMNS, 2.6 * rows), layout="constrained")
    for axes, title in zip(grid.flat, SHOWN, strict=False):
        draw(axes, panels[title], options.url, options)
    for axes in grid[-1]:
        axes.set_xlabel("seconds", fontsize=7)
    figure.savefig(options.file, dpi=80)
    return 0


if __name__ == "__main__":
    sys.exit(main())
