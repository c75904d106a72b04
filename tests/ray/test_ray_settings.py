"""The shipped Ray settings: keys and types as Ray has them, flags as vLLM has them, and one text in both files."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.config import load
from tests.ops.tools import module

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "configs" / "ray"
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
VERSION = "1.33"  # of Kubernetes
needs_ray = pytest.mark.skipif(not PYTHON.exists(), reason="Ray is not installed: scripts/setup-ray.sh")

Tree = dict[str, Any]  # Any: YAML


def serve_settings() -> Tree:
    tree: Tree = yaml.safe_load((FOLDER / "serve.yaml").read_text("utf-8"))
    return tree


def service() -> Tree:
    tree: Tree = yaml.safe_load((FOLDER / "rayservice.yaml").read_text("utf-8"))
    return tree


def engine() -> Tree:
    config: Tree = serve_settings()["applications"][0]["args"]["llm_configs"][0]
    return config


def read(tree: Tree, folder: Path) -> str:
    """What Ray says of the settings; empty when it takes them."""
    file = folder / "serve.yaml"
    file.write_text(yaml.safe_dump(tree), "utf-8")
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{FOLDER}"}
    command = [str(PYTHON), "-m", "tests.ray.read_settings", str(file)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=100)
    return done.stdout + (done.stderr if done.returncode else "")


@needs_ray
def test_ray_takes_the_settings(tmp_path: Path) -> None:
    assert read(serve_settings(), tmp_path) == ""


@needs_ray
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("deployment_config", "autoscaling_config", "min_replica"), 2),
        (("deployment_config", "autoscaling_config", "max_replicas"), 1),
        (("deployment_config", "max_ongoing"), 64),
        (("deployment_config", "request_router_config", "request_router_class"), "session_router.Missing"),
        (("accelerator_type",), "H2000"),
        (("engine_arguments",), {}),
    ],
)
def test_a_wrong_key_is_found(path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    tree = serve_settings()
    node = tree["applications"][0]["args"]["llm_configs"][0]
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    assert read(tree, tmp_path) != ""


def test_replicas_grow_as_promised() -> None:
    scaling = engine()["deployment_config"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"], scaling["target_ongoing_requests"]) == (2, 8, 15)
    worker = service()["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]
    assert (worker["minReplicas"], worker["maxReplicas"]) == (scaling["min_replicas"], scaling["max_replicas"])
    gpus = worker["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert gpus == engine()["engine_kwargs"]["tensor_parallel_size"]


def test_the_engine_is_that_of_its_profile() -> None:
    profile = load(ROOT / "configs" / "production-72b-2gpu.toml")
    arguments = dict(engine()["engine_kwargs"])
    assert arguments.pop("max_model_len") == profile.llm.context_tokens
    assert arguments == profile.llm.vllm
    assert engine()["model_loading_config"]["model_source"] == profile.llm.model


def test_the_gateway_asks_for_the_model_that_is_served() -> None:
    settings = load(FOLDER / "gateway.toml")
    assert settings.llm.model == engine()["model_loading_config"]["model_id"]
    assert settings.llm.context_tokens == engine()["engine_kwargs"]["max_model_len"]
    assert settings.llm.endpoints == (f"http://{service()['metadata']['name']}-serve-svc:{serve_settings()['http_options']['port']}/v1",)


def test_the_service_holds_the_same_settings() -> None:
    assert yaml.safe_load(service()["spec"]["serveConfigV2"]) == serve_settings()


@pytest.mark.parametrize("group", ["head", "worker"])
def test_the_pods_are_what_kubernetes_takes(group: str) -> None:
    cluster = service()["spec"]["rayClusterConfig"]
    spec = cluster["headGroupSpec"] if group == "head" else cluster["workerGroupSpecs"][0]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": group}, "spec": spec["template"]["spec"]}
    module("kubernetes_validate", "pip install kubernetes-validate").validate(pod, VERSION, strict=True)
    environment = {entry["name"]: entry["value"] for entry in pod["spec"]["containers"][0]["env"]}
    assert environment["RAY_SERVE_SESSION_ID_HEADER_KEY"] == "x-session-id"
