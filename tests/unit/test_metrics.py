"""The instruments: what stands on `/metrics` before anything has happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry

from engine import api
from gateway.metrics import LLM_FAULTS, VOICE_FAULTS, Metrics


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
        ("stretto_tokens_total", {"kind": "output"}),
        ("stretto_utterances_total", {"outcome": "failed"}),
        ("stretto_ear_errors_total", {"ear": "asr", "kind": "refused"}),
        ("stretto_speculation_total", {"outcome": "no_headroom"}),
    ],
)
def test_a_count_that_can_be_foreseen_begins_at_zero(registry: CollectorRegistry, name: str, labels: dict[str, str]) -> None:
    Metrics(registry)
    assert registry.get_sample_value(name, labels) == 0


def test_voices_that_may_step_in_for_each_other_begin_at_zero(registry: CollectorRegistry) -> None:
    Metrics(registry).foresee_voices(["piper", "edge", "piper"])
    assert registry.get_sample_value("stretto_tts_voice_changes_total", {"asked": "edge", "spoken_by": "piper"}) == 0
    assert registry.get_sample_value("stretto_tts_faults_total", {"engine": "edge", "kind": "refused"}) == 0
    assert registry.get_sample_value("stretto_tts_rests_total", {"engine": "piper"}) == 0


def test_every_fault_that_an_engine_may_have_is_foreseen() -> None:
    kinds = {kind.kind for kind in _below(api.EngineError)} | {api.EngineError.kind}
    assert kinds <= {*LLM_FAULTS, *VOICE_FAULTS}


def test_the_version_is_told(registry: CollectorRegistry) -> None:
    Metrics(registry)
    (build,) = [sample for metric in registry.collect() if metric.name == "stretto_build_info" for sample in metric.samples]
    assert build.value == 1
    assert build.labels["version"]


def _below(kind: type[api.EngineError]) -> Iterator[type[api.EngineError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _below(one)
