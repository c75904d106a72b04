"""A plan as the command line of vLLM's server. Pure.

`python -m vllm.entrypoints.openai.api_server` and not `vllm serve`: the console script is missing from some wheels, the module is not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from engine.vllm_args.plan import Plan

MODULE = "vllm.entrypoints.openai.api_server"
_OFF_BY_DEFAULT = {"disable_log_stats", "enable_log_requests", "enforce_eager", "trust_remote_code"}  # some have no `--no-` form


def command_of(plan: Plan, python: str, socket: str) -> list[str]:
    """What to run. The socket is the server's only address."""
    command = [python, "-m", MODULE, "--uds", socket, "--served-model-name", plan.model, "--disable-uvicorn-access-log"]
    command += ["--enable-prompt-tokens-details"]  # else cached tokens are not counted
    if plan.tool_call_parser is not None:
        command += ["--enable-auto-tool-choice", "--tool-call-parser", plan.tool_call_parser]
    for name, value in plan.arguments.items():
        command += flag(name, value)
    return command


def flag(name: str, value: Any) -> list[str]:  # Any: values of vLLM's own types
    """One engine argument as vLLM's command line takes it."""
    written = "--" + name.replace("_", "-")
    match value:
        case None:
            return []
        case True:
            return [written]
        case False:
            return [] if name in _OFF_BY_DEFAULT else ["--no-" + name.replace("_", "-")]
        case dict():
            return [written, json.dumps(value, sort_keys=True)]
        case list() | tuple():
            return [written, *map(str, value)]
        case _:
            return [written, str(value)]


def request_fields(plan: Plan) -> dict[str, Any]:
    """What every request has to say because the server was not told: the template's options, the operator's sampling defaults."""
    fields: dict[str, Any] = dict(plan.sampling)
    if plan.template:
        fields["chat_template_kwargs"] = dict(plan.template)
    return fields


def digest_of(plan: Plan, python: str, environment: Mapping[str, str]) -> str:
    """Changes when another engine would be started; names the socket, so that two engines never share one."""
    told = json.dumps([command_of(plan, python, ""), sorted(environment.items())], sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:12]
