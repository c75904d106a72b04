"""The manifests: keys and types as the schemas have them, and what no schema knows: that the parts fit together and fit the gateway."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from typing import Any

import pytest
import yaml

from engine.vllm_args import doctor
from gateway.config import load
from tests.ops.expressions import metrics_in, metrics_of
from tests.ops.prometheus import ROOT, RULE_FILES, rules_of
from tests.ops.tools import module

FOLDER = ROOT / "configs" / "k8s"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")
VERSION = "1.33"  # of Kubernetes, and the lowest that is tried
MODELS = {  # of custom resources, made from their CRDs
    "keda.sh/v1alpha1": ("cloudcoil.models.keda.v1alpha1", "cloudcoil-models-keda"),
    "monitoring.coreos.com/v1": ("cloudcoil.models.prometheus_operator.v1", "cloudcoil-models-prometheus-operator"),
}
TRIGGER_KEYS = {"serverAddress", "query", "threshold", "activationThreshold", "ignoreNullValues", "namespace", "timeout"}

Manifest = dict[str, Any]  # Any: YAML


def manifests() -> list[Manifest]:
    return [document for path in FILES for document in yaml.safe_load_all(path.read_text("utf-8")) if document]


def name_of(manifest: Manifest) -> str:
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


ALL = {name_of(manifest): manifest for manifest in manifests()}


def check(manifest: Manifest) -> None:
    """Raises for a key or type that the schema does not have."""
    if manifest["apiVersion"] not in MODELS:
        validator = module("kubernetes_validate", "pip install kubernetes-validate")
        validator.validate(manifest, VERSION, strict=True)
        return
    where, package = MODELS[manifest["apiVersion"]]
    model = getattr(module(where, f"pip install {package}"), manifest["kind"])
    kept = model.model_validate(manifest).model_dump(by_alias=True, exclude_unset=True, mode="json")
    lost = sorted(paths(manifest) - paths(kept))  # these models drop what they do not know
    if lost:
        raise ValueError(f"unknown: {', '.join(lost)}")


def paths(node: object, at: str = "") -> set[str]:
    """Every key in a tree, by its path."""
    if isinstance(node, dict):
        return {at}.union(*(paths(value, f"{at}.{key}") for key, value in node.items()))
    if isinstance(node, list):
        return {at}.union(*(paths(value, f"{at}[{n}]") for n, value in enumerate(node)))
    return {at}


@pytest.mark.parametrize("name", ALL)
def test_a_manifest_is_what_its_schema_says(name: str) -> None:
    check(ALL[name])


@pytest.mark.parametrize(
    ("name", "path", "wrong"),
    [
        ("Deployment/stretto-gateway", ("spec", "template", "spec", "containers", 0, "readinesProbe"), {}),
        ("Deployment/stretto-gateway", ("spec", "template", "spec", "terminationGracePeriodSeconds"), "an hour"),
        ("StatefulSet/stretto-engine", ("spec", "replica"), 2),
        ("NetworkPolicy/stretto-gateway", ("spec", "ingres"), []),
        ("ScaledObject/stretto-engine", ("spec", "minReplicas"), 2),
        ("ScaledObject/stretto-engine", ("spec", "triggers", 0, "treshold"), "1"),
        ("ServiceMonitor/stretto-gateway", ("spec", "endpoints", 0, "intervall"), "15s"),
        ("PrometheusRule/stretto", ("spec", "groups", 0, "rules", 0, "expression"), "1"),
    ],
)
def test_a_wrong_key_is_found(name: str, path: tuple[str | int, ...], wrong: object) -> None:
    spoilt = copy.deepcopy(ALL[name])
    node: Any = spoilt
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = wrong
    with pytest.raises(Exception):  # noqa: B017  # each schema has its own kind of error
        check(spoilt)


def test_the_kustomization_lists_every_file() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
    assert sorted(listed["resources"]) == [path.name for path in FILES]
    files = [entry for generator in listed["configMapGenerator"] for entry in generator["files"]]
    assert [entry for entry in files if entry.startswith("..") or not (FOLDER / entry).is_file()] == [], (
        "kustomize reads its own folder alone"
    )


def test_the_rules_are_those_of_prometheus() -> None:
    done = subprocess.run([sys.executable, "scripts/prometheus_rule.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    groups = ALL["PrometheusRule/stretto"]["spec"]["groups"]
    assert [rule for group in groups for rule in group["rules"]] == rules_of(*RULE_FILES)


def test_the_gateway_takes_its_settings() -> None:
    settings = load(FOLDER / "stretto.toml")
    gateway = container("Deployment/stretto-gateway")
    assert gateway["ports"][0]["containerPort"] == settings.server.port
    assert {entry["name"] for entry in gateway["env"]} >= {"STRETTO_KEYS", settings.llm.key_variable}
    assert ALL["Service/stretto-gateway"]["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"] > settings.session.resume_s


def test_a_call_may_end_before_the_gateway_does() -> None:
    pod = ALL["Deployment/stretto-gateway"]["spec"]["template"]["spec"]
    hook = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    settings = load(FOLDER / "stretto.toml")
    assert hook[0] == "wait-for-calls"
    assert int(hook[1]) + settings.server.drain_s + 10 < pod["terminationGracePeriodSeconds"]


def test_the_gateways_know_every_engine_that_may_be_started() -> None:
    settings = load(FOLDER / "stretto.toml")
    most = ALL["ScaledObject/stretto-engine"]["spec"]["maxReplicaCount"]
    service = ALL["StatefulSet/stretto-engine"]["spec"]["serviceName"]
    assert settings.llm.endpoints == tuple(f"http://stretto-engine-{n}.{service}:8000/v1" for n in range(most))


def test_the_engines_flags_are_vllms_and_serve_what_the_gateway_asks_for() -> None:
    engine = container("StatefulSet/stretto-engine")
    report = doctor.examine(" ".join([*engine["command"], *engine["args"]]))
    settings = load(FOLDER / "stretto.toml")
    assert [str(finding) for finding in report.findings if not finding.exists] == []
    assert settings.llm.model == engine["args"][0]
    assert f"--max-model-len={settings.llm.context_tokens}" in engine["args"]


def test_services_policies_and_budgets_select_the_pods() -> None:
    pods = [ALL[name]["spec"]["template"] for name in ("Deployment/stretto-gateway", "StatefulSet/stretto-engine")]
    for name, manifest in ALL.items():
        spec = manifest.get("spec", {})
        chosen = spec.get("selector") or spec.get("podSelector") or {}
        wanted = chosen.get("matchLabels", chosen if manifest["kind"] == "Service" else {})
        if wanted:
            assert any(wanted.items() <= pod["metadata"]["labels"].items() for pod in pods), name


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("ScaledObject/")])
def test_it_scales_on_metrics_that_exist(name: str, scraped: str, vllm_metrics: str) -> None:
    known = metrics_of(scraped) | metrics_of(vllm_metrics) | {str(rule["record"]) for rule in rules_of(*RULE_FILES) if "record" in rule}
    target = ALL[name]["spec"]["scaleTargetRef"]
    assert f"{target['kind']}/{target['name']}" in ALL
    for trigger in ALL[name]["spec"]["triggers"]:
        assert metrics_in(trigger["metadata"]["query"]) <= known
        assert set(trigger["metadata"]) <= TRIGGER_KEYS
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        jobs = re.findall(r'job="([^"]+)"', trigger["metadata"]["query"])
        assert [job for job in jobs if f"ServiceMonitor/{job}" not in ALL] == []


def container(name: str) -> Manifest:
    """The first container of a workload."""
    found: Manifest = ALL[name]["spec"]["template"]["spec"]["containers"][0]
    return found
