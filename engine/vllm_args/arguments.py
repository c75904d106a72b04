"""The `[llm.vllm]` section becomes a plan: explicit values for everything that decides latency, refusals that explain.

Pure. Keys of the section are vLLM's own argument names, plus a few of ours (`OURS`). A key is refused when vLLM does not
have it, or when its value is known to hurt; `allow = ["name"]` lifts the latter for someone who measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.api import EngineSetupError
from engine.vllm_args import rules, signatures, values
from engine.vllm_args.options import option_faults
from engine.vllm_args.plan import Device, Plan

# Every value has its reason; `configs/production-*.toml` say more and have the measured effects.
SHARED: dict[str, Any] = {
    "scheduling_policy": "priority",  # real turns before drafts before warm-ups
    "enable_prefix_caching": True,  # history is read once
    "stream_interval": 1,  # every token counts on the way to the first sentence
    "generation_config": "auto",  # the model's own stop tokens
    "disable_log_stats": False,  # metrics, and the step clock of the watchdog
    "enable_log_requests": False,  # no content in logs
    "max_logprobs": 0,  # one request with log-probabilities slows down all others
    "seed": 0,  # the same plan makes the same engine
}
DEVICE: dict[Device, dict[str, Any]] = {
    "cuda": {
        "max_num_seqs": 64,  # replies made at once
        "max_num_batched_tokens": 4096,  # longest step, hence the longest pause that a stranger's prompt causes
        "long_prefill_token_threshold": 1024,  # a pasted document goes in steps of this; smaller steps cost everybody more
        # vLLM stops at twice max_num_seqs, and a step beyond the largest graph is launched kernel by kernel: 512 tokens 81 ms, not 48
        "max_cudagraph_capture_size": 512,
        "gpu_memory_utilization": 0.90,  # room for a voice beside it
        "performance_mode": "interactivity",  # a CUDA graph for every small batch
    },
    "cpu": {
        "max_num_seqs": 16,
        "max_num_batched_tokens": 512,  # 0.8 s on one core: a step is not interrupted, so a barge-in waits for it (2,048: 3.9 s)
        "long_prefill_token_threshold": 256,  # counts only where others wait; a prompt alone takes the whole budget
        "block_size": 32,  # vLLM's default on a CPU is 128: prefix hits in steps of 128 tokens
        "kv_cache_memory_bytes": 128 << 20,  # 5,800 tokens of SmolLM2-135M; the default takes gigabytes
        "enforce_eager": True,  # torch.compile takes 80 to 120 s here and gains 10 %
        "dtype": "bfloat16",  # float32 is a third slower
    },
}
OPTIONAL = frozenset({"performance_mode", "long_prefill_token_threshold", "max_logprobs"})  # ours to leave out where a release lacks them
OURS = frozenset({"allow", "thinking", "template", "sampling", "open_requests", "canary_s", "hung_s", "tool_call_parser"})
_ALWAYS = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_WORKER_MULTIPROCESSING_METHOD": "spawn",  # a fork would inherit our listening socket and our threads' locks
    "STRETTO_ENGINE_FOLLOWS_PARENT": "1",  # see engine/llm/vllm/orphan.py
}


def plan(
    model: str,
    section: Mapping[str, Any],
    *,
    device: Device,
    context_tokens: int,
    threads: int = 0,
    cache_path: Path | None = None,
    known: frozenset[str] | None = None,
) -> Plan:
    """The plan for `model` on `device`. `known`: the installed vLLM's arguments, else those of any release in the table.

    Raises `EngineSetupError` that names the key, what is wrong with it, and what to write.
    """
    given = {key: value for key, value in section.items() if key not in OURS}
    _check(given, section, device, known)
    arguments = {"model": model, "max_model_len": context_tokens, **SHARED, **DEVICE[device], **given}
    _check_pairs(arguments, context_tokens)
    sampling = _table(section, "sampling")
    if faults := list(option_faults(arguments, sampling)):
        raise EngineSetupError("\n".join(faults))
    thinking = bool(section.get("thinking", False))
    return Plan(
        model=model,
        device=device,
        arguments=arguments,
        optional=OPTIONAL - set(given),
        environment=_environment(device, model, threads, cache_path, int(arguments.get("tensor_parallel_size", 1))),
        template={"enable_thinking": thinking, **_table(section, "template")},
        sampling=sampling,
        tool_call_parser=section.get("tool_call_parser"),
        open_requests=int(section.get("open_requests", 4 * arguments["max_num_seqs"])),
        canary_s=float(section.get("canary_s", 15.0)),
        hung_s=float(section.get("hung_s", 20.0)),
    )


def fault(name: str, value: Any, device: Device, known: frozenset[str] | None) -> str | None:
    """Why a profile may not have `name = value`; None where it may."""
    rule = rules.judge(name, value)
    if rule is not None and rule.refuse and not (device == "cpu" and name == "enforce_eager"):
        return f"{rule.says}" + (f"; use {rule.instead}" if rule.instead else "")
    if name in (known if known is not None else signatures.names("arguments")):
        return values.setting_fault(name, value)
    if (span := signatures.span("arguments", name)) is not None:
        return f"the installed vLLM does not have it ({span})"
    if name in signatures.names("server"):
        return "belongs to vLLM's own HTTP server, which does not run when the engine is embedded"
    similar = [other for other in signatures.similar(name) if other in signatures.names("arguments")]
    return "vLLM has no such argument" + (f"; did you mean {' or '.join(similar)}?" if similar else "")


def _check(given: Mapping[str, Any], section: Mapping[str, Any], device: Device, known: frozenset[str] | None) -> None:
    allowed = set(section.get("allow", ()))
    faults = [(name, value, fault(name, value, device, known)) for name, value in given.items()]
    lines = [
        f"llm.vllm.{name} = {value!r}: {why}" for name, value, why in faults if why is not None and not (name in allowed and _exists(name))
    ]
    if lines:
        raise EngineSetupError("\n".join(lines) + _how_to_allow(given))


def _exists(name: str) -> bool:
    return name in signatures.names("arguments")


def _how_to_allow(given: Mapping[str, Any]) -> str:
    lifted = [name for name, value in given.items() if _exists(name) and (rule := rules.judge(name, value)) is not None and rule.refuse]
    return f'\nTo have it nevertheless, for a measurement: llm.vllm.allow = ["{lifted[0]}"]' if lifted else ""


def _check_pairs(arguments: Mapping[str, Any], context_tokens: int) -> None:
    """Refuse values that vLLM would take and that cannot be meant."""
    if arguments["max_model_len"] != context_tokens:
        raise EngineSetupError(
            f"llm.vllm.max_model_len is {arguments['max_model_len']}, llm.context_tokens {context_tokens}: set llm.context_tokens alone"
        )
    batched, seqs = arguments["max_num_batched_tokens"], arguments["max_num_seqs"]
    if batched < seqs:
        raise EngineSetupError(
            f"llm.vllm.max_num_batched_tokens ({batched}) must be at least max_num_seqs ({seqs}): one token for each reply"
        )


def _table(section: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = section.get(key, {})
    if not isinstance(value, dict):
        raise EngineSetupError(f"llm.vllm.{key} must be a table; got {value!r}")
    return dict(value)


def _environment(device: Device, model: str, threads: int, cache_path: Path | None, parallel: int) -> dict[str, str]:
    """Set unless the operator did."""
    environment = dict(_ALWAYS)
    if Path(model).expanduser().is_dir():
        environment["HF_HUB_OFFLINE"] = "1"
    if cache_path is not None:
        environment["VLLM_CACHE_ROOT"] = str(cache_path / "vllm")  # compiled graphs: 60 to 170 s of a start
    if device == "cpu":
        # Two OpenMP threads collapse on a busy machine; without multiprocessing there is one child instead of two.
        environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(threads or 1), "VLLM_LOGGING_LEVEL": "WARNING"}
        if parallel > 1:
            environment["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(core) for core in range(parallel))  # a core for each worker
    return environment
