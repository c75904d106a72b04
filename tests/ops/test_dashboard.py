"""The dashboard: made by its script, every expression answered by a real Prometheus, every metric there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import Any

import pytest
import yaml

from tests.ops.conftest import Watched
from tests.ops.expressions import metrics_in, metrics_of
from tests.ops.prometheus import ROOT, RULE_FILES, rules_of

GRAFANA = ROOT / "configs" / "grafana"
DASHBOARD = json.loads((GRAFANA / "dashboards" / "stretto.json").read_text("utf-8"))
PANELS = {panel["title"]: panel for panel in DASHBOARD["panels"] if panel["type"] != "row"}
EXPRESSIONS = [target["expr"] for panel in PANELS.values() for target in panel["targets"]]
ALIVE = (  # panels that must show something while typed turns are answered
    "First segment, p99", "First audio of typed turns, p99", "Perceived latency, p50", "Turns later than promised", "Where the wait goes",
    "Perceived latency", "TTFT", "First segment", "First audio", "Talkers", "Turns by how they ended", "Punctuation hit rate",
    "Segments by what cut them", "Tokens", "Voices: segment to first chunk", "Event loop: how late it wakes, p99",
    "Outbox: time a frame waits for its socket", "CPU of the gateway", "Memory of the gateway",
)  # fmt: skip


def filled(expression: str) -> str:
    """With Grafana's variables filled in."""
    return expression.replace("$__rate_interval", "10s").replace("$job", ".*").replace("$instance", ".*")


def test_the_file_is_what_its_script_writes() -> None:
    done = subprocess.run([sys.executable, "scripts/dashboard.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_expression_is_understood_by_prometheus(watched: Watched) -> None:
    for expression in EXPRESSIONS:
        watched.prometheus.get("query", query=filled(expression))


def test_every_metric_exists(scraped: str, vllm_metrics: str) -> None:
    known = metrics_of(scraped) | metrics_of(vllm_metrics) | {str(rule["record"]) for rule in rules_of(*RULE_FILES) if "record" in rule}
    missing = {expression: names for expression in EXPRESSIONS if (names := metrics_in(expression) - known)}
    assert missing == {}


def test_no_instrument_is_forgotten(scraped: str) -> None:
    """What nobody looks at is not worth counting: each of ours stands on a panel, or in a rule."""
    rules = [str(rule["expr"]) for rule in rules_of(*RULE_FILES)]
    used = set().union(*(metrics_in(expression) for expression in (*EXPRESSIONS, *rules)))
    families = re.findall(r"^# TYPE (stretto_\w+) (?:counter|gauge|histogram)$", scraped, re.MULTILINE)
    assert len(families) > 30
    assert [name for name in families if not any(each.startswith(name) for each in used)] == []


@pytest.mark.parametrize("title", ALIVE)
def test_a_panel_shows_something_while_people_talk(watched: Watched, title: str) -> None:
    ends_at = watched.talking_since + 45
    for target in PANELS[title]["targets"]:
        while not (found := numbers(watched.prometheus.query(filled(target["expr"])))) and time.monotonic() < ends_at:
            time.sleep(0.3)
        assert found, target["expr"]


def test_the_stages_of_the_wait_add_up_to_what_is_felt(watched: Watched) -> None:
    test_a_panel_shows_something_while_people_talk(watched, "Where the wait goes")
    mean = "sum(rate(stretto_perceived_latency_seconds_sum[10s])) / sum(rate(stretto_perceived_latency_seconds_count[10s]))"
    ends_at = watched.talking_since + 45
    while True:  # a scrape may come between two of the queries, and a busy machine stretch any stage of one
        stages = [(numbers(watched.prometheus.query(filled(t["expr"]))) or [0.0])[0] for t in PANELS["Where the wait goes"]["targets"]]
        felt = (numbers(watched.prometheus.query(mean)) or [0.0])[0]
        if (sum(stages) == pytest.approx(felt, rel=0.3) and max(stages) == stages[0]) or time.monotonic() > ends_at:
            break
        time.sleep(0.3)
    assert sum(stages) == pytest.approx(felt, rel=0.3)
    assert max(stages) == stages[0], "the engine was slowed down, and the picture says so"


def test_panels_lie_beside_each_other_and_have_their_own_numbers() -> None:
    cells = [(x, y) for p in DASHBOARD["panels"] for x in _span(p, "x", "w") for y in _span(p, "y", "h")]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_provisioning_finds_the_source_and_the_folder() -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text("utf-8"))["datasources"]
    folders = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "stretto.yml").read_text("utf-8"))["providers"]
    mounts = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))["services"]["grafana"]["volumes"]
    assert sources[0]["type"] == "prometheus"
    assert any(mount.split(":")[1] == folders[0]["options"]["path"] for mount in mounts)


def numbers(vector: list[dict[str, Any]]) -> list[float]:  # Any: JSON
    """Its values that are numbers."""
    return [value for sample in vector if (value := float(sample["value"][1])) == value]


def _span(panel: dict[str, Any], at: str, length: str) -> range:  # Any: JSON
    return range(panel["gridPos"][at], panel["gridPos"][at] + panel["gridPos"][length])
