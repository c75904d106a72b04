"""What the measured gateway and engine are told: environment and settings tree, as a TOML file would hold them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

# NVLink multicast stays off: on a host shared with others it can take the GPUs out of service, and vLLM's default all-reduce that
# uses it died with an illegal memory access at TP 2.
NO_MULTICAST = {
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# FlashInfer's top-p sampler is compiled on first use, with the first caller waiting; vLLM's own needs no compiler.
SAMPLER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
PERSONA = (
    "You are Marlow, a warm and attentive voice companion. You answer in one to three short spoken sentences, without lists, headings "
    "or markup, because everything you write is read aloud at once. You remember what the caller has told you and come back to it when "
    "it fits. You ask at most one question at a time. You never invent facts about the caller, and you say so when you do not know "
    "something. Numbers are written as words where that helps the ear. When somebody is sad you slow down, name what you heard, and "
    "offer one small next step. When somebody is in a hurry you give the answer first and the reason second. You speak plain English, "
    "avoid foreign words, and never mention that you are a model or how you were made. If you are asked for something dangerous, you "
    "decline in one friendly sentence and offer something else. "
)
KEEP_TOKENS = 6000
# How the engine's processes learn of files. Not our prefix: those of the gateway's own names stay with the gateway.
REPLIES_VARIABLE, RULES_VARIABLE = "GPU_RUN_REPLIES", "GPU_RUN_STEP_RULES"
NEED_RULES = {"priority"}  # rows that change the scheduler's rules while the engine runs


def runner(args: argparse.Namespace) -> str:
    """vLLM's model runner: V2 does not speculate by ngram."""
    if args.runner:
        return str(args.runner)
    return "v2" if args.device == "cuda" and not args.ngram else "v1"


def vllm(args: argparse.Namespace) -> dict[str, Any]:
    """The section `[llm.vllm]`; what it leaves out has the product's own value."""
    section: dict[str, Any] = {"load_format": "dummy", "max_num_seqs": args.seqs, "tensor_parallel_size": args.tp}
    section |= {"allow": ["enforce_eager"], "worker_extension_cls": "scripts.gpu.forced.Forcing"}
    if NEED_RULES & set(args.rows.split(",")) and not args.no_async:
        section["scheduler_cls"] = "scripts.gpu.step_rules.StepRules"
    if args.quantization:
        section["quantization"] = args.quantization
    if args.eager:
        section["enforce_eager"] = True
    if args.no_prefix:
        section["enable_prefix_caching"] = False
        section["allow"].append("enable_prefix_caching")
    if args.no_async:
        section["async_scheduling"] = False
    if args.ngram:
        section["speculative_config"] = {
            "method": "ngram", "num_speculative_tokens": args.ngram, "prompt_lookup_min": 2, "prompt_lookup_max": 4,
        }  # fmt: skip
    if args.device == "cuda" and args.tp > 1:
        section["compilation_config"] = {"pass_config": {"fuse_allreduce_rms": False}}
    if args.device == "cpu":
        section |= {"kv_cache_memory_bytes": 256 << 20}
    return section | {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in args.set)}


def tree(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The settings of the gateway that runs the model in `folder`."""
    n_talkers = max(*map(int, args.levels.split(",")), 64)
    engine = "vllm-serve" if args.serve else "vllm"
    return {
        "cache_dir": str(folder.parent / "cache"),
        "instructions": PERSONA,
        "server": {"port": 0, "debug_stamps": True, "drain_s": 1.0},
        "session": {"max_sessions": n_talkers + 16, "context_tokens": KEEP_TOKENS},
        "turn": {"max_tokens": 120, "first_delta_s": 120.0, "next_delta_s": 60.0},
        "llm": {"engine": engine, "model": str(folder), "context_tokens": 8192, "first_s": 60.0, "next_s": 60.0, "vllm": vllm(args)},
        "tts": {"engines": ["fake"]},
        "asr": {"engine": "off"},
        "log": {"level": "warning"},
        "fake": {"tts_first_chunk_ms": 60.0, "tts_rtf": 0.5},
    }
