"""Reads `configs/ray/serve.yaml` with Ray's own schemas, in Ray's environment: prints the fault of each wrong part, nothing if all is well.

python -m tests.ray.read_settings FILE
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig  # the public name needs vLLM
from ray.serve.config import AutoscalingConfig, RequestRouterConfig
from ray.serve.schema import DeploymentSchema, ServeDeploySchema


def unknown(known: set[str], given: dict[str, Any]) -> list[str]:
    """Ray's own models drop what they do not know."""
    return sorted(set(given) - known)


def deployment(where: str, options: dict[str, Any]) -> list[str]:
    faults = [f"{where}: unknown {name}" for name in unknown(set(DeploymentSchema.model_fields), options)]
    scaling, router = options.get("autoscaling_config", {}), options.get("request_router_config", {})
    faults += [f"{where}.autoscaling_config: unknown {name}" for name in unknown(set(AutoscalingConfig.model_fields), scaling)]
    faults += [f"{where}.request_router_config: unknown {name}" for name in unknown(set(RequestRouterConfig.model_fields), router)]
    DeploymentSchema.model_validate({"name": where, **options})
    return faults


def faults_of(tree: dict[str, Any]) -> list[str]:
    ServeDeploySchema.model_validate(tree)
    found = []
    for application in tree["applications"]:
        arguments = application["args"]
        found += deployment("ingress_deployment_config", arguments["ingress_deployment_config"])
        for number, config in enumerate(arguments["llm_configs"]):
            LLMConfig.model_validate(config)
            found += deployment(f"llm_configs.{number}.deployment_config", config["deployment_config"])
    return found


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(faults_of(yaml.safe_load(file))), end="")
