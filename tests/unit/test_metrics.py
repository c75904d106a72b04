"""The instruments: what stands on `/metrics` before anything has happened."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from gateway.metrics import EAR_FAULTS, LLM_FAULTS, VOICE_FAULTS, Metrics

ENGINE = Path(__file__).parents[2] / "engine"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("stretto_turns_total", {"status": "failed"}),
        ("stretto_turns_abandoned_total", {"stage": "ttft"}),
        ("stretto_turns_late_total", {"input": "speech"}),
        ("stretto_interruptions_total", {"kind": "speech"}),
        ("stretto_admission_refused_total", {"reason": "full"}),
        ("stretto_llm_errors_total", {"kind": "stalled"}),
        ("stretto_errors_total", {"code": "input_refused"}),
        ("stretto_tokens_total", {"kind": "output"}),
        ("stretto_utterances_total", {"outcome": "failed"}),
        ("stretto_ear_errors_total", {"ear": "asr", "kind": "refused"}),
        ("stretto_speculation_total", {"outcome": "no_headroom"}),
    ],
)
def test_a_count_that_can_be_foreseen_begins_at_zero(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> None:
    Metrics(registry)
    assert registry.get_sample_value(name, labels) == 0


def test_a_scrape_has_no_birth_dates(registry: CollectorRegistry) -> None:
    Metrics(registry)
    page = generate_latest(registry).decode()
    assert "stretto_turns_total" in page
    assert "_created" not in page


def test_voices_that_may_step_in_for_each_other_begin_at_zero(registry: CollectorRegistry) -> None:
    Metrics(registry).foresee_voices(["piper", "edge", "piper"])
    assert registry.get_sample_value("stretto_tts_voice_changes_total", {"asked": "edge", "spoken_by": "piper"}) == 0
    assert registry.get_sample_value("stretto_tts_faults_total", {"engine": "edge", "kind": "refused"}) == 0
    assert registry.get_sample_value("stretto_tts_rests_total", {"engine": "piper"}) == 0


@pytest.mark.parametrize(("folder", "foreseen"), [("llm", LLM_FAULTS), ("tts", VOICE_FAULTS), ("asr", EAR_FAULTS)])
def test_every_fault_that_an_engine_may_have_is_foreseen(folder: str, foreseen: tuple[str, ...]) -> None:
    found = {kind for path in (ENGINE / folder).rglob("*.py") for kind in kinds_in(path.read_text("utf-8"))}
    assert found <= set(foreseen)


def test_the_kinds_of_all_engines_are_foreseen_by_whom_they_may_befall() -> None:
    common = kinds_in((ENGINE / "api" / "errors.py").read_text("utf-8"))
    assert "stalled" in common
    assert common <= {*LLM_FAULTS, *VOICE_FAULTS}


def test_the_version_is_told(registry: CollectorRegistry) -> None:
    Metrics(registry)
    (build,) = [sample for metric in registry.collect() if metric.name == "stretto_build_info" for sample in metric.samples]
    assert build.value == 1
    assert build.labels["version"]


def kinds_in(source: str) -> set[str]:
    """The `kind` of every class."""
    assignments = (line for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) for line in node.body)
    return {
        str(line.value.value)
        for line in assignments
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "kind" and isinstance(line.value, ast.Constant)
    }
