"""What is known about vLLM's flags for a voice service: helps, hurts, gone, never existed; and by how much.

Pure data. The measured figures: H200, vLLM 0.26.0, random weights at real sizes (72B on two GPUs, 7B on one), 2026-11;
ITL is the gap between tokens. What is not measured says so. `instead` is what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct

Verdict = Literal["helps", "hurts", "neutral", "risky", "gone", "never"]


class Rule(Struct, frozen=True, kw_only=True):
    """Applies to argument `name` where `when` holds for its value; the first that applies counts. `refuse`: a profile may not have it."""

    name: str
    verdict: Verdict
    says: str
    instead: str = ""
    when: Callable[[Any], bool] = lambda _: True  # Any: whatever an operator wrote
    refuse: bool = False


def _is_true(value: Any) -> bool:
    return value is True


def _is_false(value: Any) -> bool:
    return value is False


def _above(limit: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value > limit


def _below(limit: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and value < limit


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _has(key: str, *values: Any) -> Callable[[Any], bool]:
    """A table with one of `values` under `key`."""
    return lambda value: isinstance(value, dict) and value.get(key) in values


def _is(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


def _not(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value not in values


NAMES = (  # flags of the wild that vLLM does not have
    Rule(
        name="max_seq_len",
        verdict="never",
        says="was never a vLLM flag; vLLM refuses to start with it",
        instead="max_model_len",
        refuse=True,
    ),
    Rule(name="max_sequence_length", verdict="never", says="was never a vLLM flag", instead="max_model_len", refuse=True),
    Rule(name="draft_model", verdict="never", says="does not exist", instead="speculative_config", refuse=True),
    Rule(name="num_draft_tokens", verdict="never", says="does not exist", instead="speculative_config", refuse=True),
    Rule(
        name="speculative_temperature",
        verdict="never",
        says="does not exist; the draft follows the request's own temperature",
        instead="",
        refuse=True,
    ),
    Rule(name="speculative_model", verdict="gone", says="was replaced", instead="speculative_config", refuse=True),
    Rule(name="num_speculative_tokens", verdict="gone", says="was replaced", instead="speculative_config", refuse=True),
    Rule(
        name="max_num_partial_prefills",
        verdict="gone",
        says="did nothing in vLLM's V1 engine and was removed after 0.26",
        instead="long_prefill_token_threshold",
        refuse=True,
    ),
    Rule(
        name="max_long_partial_prefills",
        verdict="gone",
        says="did nothing in vLLM's V1 engine and was removed after 0.26",
        instead="long_prefill_token_threshold",
        refuse=True,
    ),
    Rule(
        name="enable_chunked_prefill",
        verdict="neutral",
        when=_is_true,
        says="is the default; it lets a long prompt be read in steps between other people's tokens",
    ),
    Rule(
        name="enable_chunked_prefill",
        verdict="hurts",
        when=_is_false,
        refuse=True,
        says="lets one long prompt stop every speaker: a fresh 2,048-token prompt takes 245 ms on a 72B (bf16), all in one step",
    ),
    Rule(name="use_v2_block_manager", verdict="gone", says="is the only one now", refuse=True),
    Rule(name="num_scheduler_steps", verdict="gone", says="went with the V0 engine; async scheduling is on by default", refuse=True),
    Rule(name="swap_space", verdict="gone", says="went with the V0 engine", instead="kv_offloading_size", refuse=True),
    Rule(name="worker_use_ray", verdict="gone", says="was replaced", instead="distributed_executor_backend", refuse=True),
    Rule(name="rope_scaling", verdict="gone", says="was replaced by the model's own configuration", instead="hf_overrides", refuse=True),
    Rule(name="device", verdict="gone", says="is found by itself now", refuse=True),
    Rule(name="guided_decoding_backend", verdict="gone", says="was replaced", instead="structured_outputs_config", refuse=True),
    Rule(name="enable_reasoning", verdict="gone", says="is on where a parser is named", instead="reasoning_parser", refuse=True),
    Rule(name="task", verdict="gone", says="was replaced", instead="runner", refuse=True),
    Rule(name="max_seq_len_to_capture", verdict="gone", says="was replaced", instead="max_cudagraph_capture_size", refuse=True),
    Rule(name="disable_log_requests", verdict="gone", says="is the default now", instead="enable_log_requests", refuse=True),
)

VALUES = (
    Rule(
        name="enforce_eager",
        verdict="hurts",
        when=_is_true,
        refuse=True,
        says="turns CUDA graphs off: on a 72B, ITL 21.6 -> 87.7 ms, TTFT 35 -> 109 ms, first sentence 270 -> 1,090 ms (one conversation). "
        "The memory leak that it was once advised against was mended in early 2024. Its one gain is start-up: 233 -> 30 s",
    ),
    Rule(name="enforce_eager", verdict="helps", when=_is_false, says="is the default; CUDA graphs are worth a factor of four in ITL"),
    Rule(
        name="disable_log_stats",
        verdict="hurts",
        when=_is_true,
        refuse=True,
        says="removes every vLLM metric and the watch on a hung engine; the 5 % that it is said to bring were never shown",
    ),
    Rule(
        name="enable_prefix_caching",
        verdict="hurts",
        when=_is_false,
        refuse=True,
        says="reads the whole conversation again in each turn: 2,048 tokens cost 245 ms instead of 46 ms to the first token on a 72B, "
        "48 instead of 18 ms on a 7B",
    ),
    Rule(
        name="enable_prefix_caching",
        verdict="helps",
        when=_is_true,
        says="is the default and the largest gain in TTFT: 245 -> 46 ms at 2,048 tokens on a 72B",
    ),
    Rule(
        name="max_num_seqs",
        verdict="neutral",
        when=_above(128),
        says="costs memory and graph captures that voice does not fill: a conversation asks the model a fraction of its time. "
        "Measured with 64 to 128 conversations: 72B FP8 TTFT p99 60 ms, first audio p99 314 ms",
        instead="64",
    ),
    Rule(name="max_num_seqs", verdict="helps", says="bounds how many replies are made at once; right in size for voice"),
    Rule(
        name="max_num_batched_tokens",
        verdict="hurts",
        when=_above(8192),
        refuse=True,
        says="lets one step take as long as its prefill: on a 72B 245 ms (FP8 157 ms) per 2,048 fresh tokens, and every speaker waits",
        instead="4096",
    ),
    Rule(
        name="max_num_batched_tokens",
        verdict="hurts",
        when=_below(1024),
        says="lets one long prompt fill every step while others wait for room: with 512, first segments beside a 6,000-token prompt "
        "a second took 2,212 ms (p95) instead of 623 on a 72B in FP8, 265 instead of 140 on a 7B",
        instead="4096",
    ),
    Rule(
        name="max_num_batched_tokens",
        verdict="helps",
        says="bounds one step, and so the pause that one long prompt causes everybody; 4,096 is measured",
    ),
    Rule(
        name="long_prefill_token_threshold",
        verdict="hurts",
        when=_between(1, 1023),
        says="cuts a pasted document into so many steps that everybody's tokens slow down for longer: beside a 6,000-token prompt a "
        "second, first segments took 769 ms (p95) with 512 and 998 with 256, instead of 623 with 1,024 (72B FP8)",
        instead="1024",
    ),
    Rule(
        name="long_prefill_token_threshold",
        verdict="helps",
        when=_above(0),
        says="reads a pasted document in steps, so that others get their first token between them: TTFT p95 492 -> 307 ms beside a "
        "6,000-token prompt a second (72B FP8); first segments stay as they are",
    ),
    Rule(
        name="max_cudagraph_capture_size",
        verdict="helps",
        when=_above(511),
        says="lets steps with up to that many tokens replay a CUDA graph; vLLM alone stops at twice max_num_seqs. 512 fresh tokens took "
        "81 ms with graphs to 128, 48 with graphs to 512 (72B FP8; 23 and 16 on a 7B)",
    ),
    Rule(
        name="gpu_memory_utilization",
        verdict="risky",
        when=_above(0.93),
        says="leaves too little for CUDA graphs and for a voice on the same GPU; more KV cache than the conversations need buys nothing",
        instead="0.90",
    ),
    Rule(
        name="gpu_memory_utilization", verdict="neutral", says="sets how much KV cache there is; what counts is that the conversations fit"
    ),
    Rule(
        name="scheduling_policy",
        verdict="hurts",
        when=_not("priority"),
        refuse=True,
        says="makes vLLM ignore priorities without a word: drafts and warm-ups would stand in line before real turns",
        instead="priority",
    ),
    Rule(
        name="scheduling_policy",
        verdict="helps",
        when=_is("priority"),
        says="lets real turns pass drafts and warm-ups in the queue: with 96 background replies beside 32 talkers, TTFT 354 -> 90 ms (7B). "
        "It does not order tokens being made, and it shields nobody from a long prompt that is being read",
    ),
    Rule(
        name="stream_interval",
        verdict="hurts",
        when=_above(1),
        says="holds tokens back: each extra one delays the first sentence by an ITL (13 to 25 ms on a 72B)",
        instead="1",
    ),
    Rule(
        name="tensor_parallel_size",
        verdict="helps",
        when=_above(1),
        says="shortens TTFT and ITL until talk between the GPUs dominates; all of them must be the same model",
    ),
    Rule(name="pipeline_parallel_size", verdict="hurts", when=_above(1), says="adds stages to every token", instead="tensor_parallel_size"),
    Rule(
        name="quantization",
        verdict="never",
        when=_is("int8", "int4", "INT8"),
        refuse=True,
        says="is no name that vLLM knows; a W8A8 checkpoint is recognized by itself",
        instead="fp8, or leave it out",
    ),
    Rule(
        name="quantization",
        verdict="helps",
        when=_is("fp8"),
        says="on Hopper: 72B on two GPUs, ITL 21.6 -> 13.1 ms, TTFT 35 -> 28 ms, a fresh 2,048-token prompt 245 -> 157 ms. "
        "A checkpoint that is FP8 already needs no flag and starts faster",
    ),
    Rule(
        name="quantization",
        verdict="neutral",
        when=_is("awq", "gptq", "awq_marlin", "gptq_marlin", "auto_awq", "auto_gptq"),
        says="is read from the checkpoint; saves memory and speeds up decoding of few conversations, not prefill (validated, not measured)",
        instead="leave it out",
    ),
    Rule(name="quantization", verdict="neutral", says="is read from the checkpoint", instead="leave it out"),
    Rule(
        name="speculative_config",
        verdict="hurts",
        when=_has("method", "ngram", "[ngram]"),
        says="rarely finds a conversation's next words in the prompt: ITL 5.0 -> 11.5 ms, first segment 49 -> 90 ms (7B, 32 talkers). "
        "It pays only where replies quote their prompt (ITL 2.4 ms)",
        instead="eagle3 or mtp, with a draft made for the model",
    ),
    Rule(
        name="speculative_config",
        verdict="helps",
        says="two or three draft tokens shorten the first sentence, not TTFT (reported elsewhere: 14.5 -> 18.8 ms with EAGLE); "
        "measure it on your own model",
    ),
    Rule(
        name="max_model_len",
        verdict="helps",
        says="bounds the worst prefill and the memory of one conversation; 4,096 to 8,192 is plenty for voice",
    ),
    Rule(
        name="tokenizer_mode",
        verdict="gone",
        when=_is("slow"),
        refuse=True,
        says="is gone; the fast tokenizer also makes streaming cheap",
        instead="leave it out",
    ),
    Rule(
        name="block_size", verdict="neutral", when=_above(32), says="makes prefix hits coarser: only whole blocks are found", instead="16"
    ),
    Rule(name="block_size", verdict="neutral", says="16 is the default on GPUs; only whole blocks are found in the cache"),
    Rule(
        name="max_logprobs",
        verdict="hurts",
        when=_above(0),
        says="lets one request slow down everybody: 76 to 423 times the TTFT of others was reported with 20 log-probabilities and n=8",
        instead="0",
    ),
    Rule(
        name="load_format",
        verdict="neutral",
        says="changes start-up only: fastsafetensors, runai_streamer, sharded_state read faster (validated, not measured)",
    ),
    Rule(
        name="performance_mode",
        verdict="helps",
        when=_is("interactivity"),
        says="captures a CUDA graph for each batch size to 32, so that small batches are not padded (validated, not measured)",
    ),
    Rule(
        name="performance_mode", verdict="hurts", when=_is("throughput"), says="prefers big batches to quick ones", instead="interactivity"
    ),
    Rule(
        name="async_scheduling",
        verdict="helps",
        when=_is_true,
        says="is on by default where it can be: ITL 6.7 -> 4.9 ms, first segment 65 -> 46 ms (7B, 32 conversations), for at "
        "most 3 ms of TTFT",
    ),
    Rule(
        name="async_scheduling",
        verdict="hurts",
        when=_is_false,
        says="lets the GPU wait for the scheduler between steps: ITL 4.9 -> 6.7 ms, first audio 106 -> 126 ms (7B, 32 conversations)",
        instead="leave it out",
    ),
    Rule(
        name="generation_config",
        verdict="neutral",
        says="decides whose sampling defaults apply; Stretto sets temperature, top_p and length itself",
    ),
    Rule(name="trust_remote_code", verdict="risky", when=_is_true, says="runs code out of the model's repository in your process"),
    Rule(name="enable_log_requests", verdict="hurts", when=_is_true, refuse=True, says="writes people's conversations into the log"),
    Rule(
        name="kv_cache_dtype",
        verdict="helps",
        when=_is("fp8", "fp8_e4m3", "fp8_e5m2"),
        says="halves the memory of a conversation (validated, not measured)",
    ),
    Rule(name="dtype", verdict="hurts", when=_is("float32"), says="doubles weights and time", instead="auto"),
    Rule(name="gpu_memory_utilization", verdict="risky", when=_below(0.3), says="leaves almost no KV cache"),
)


def judge(name: str, value: Any) -> Rule | None:
    """What is known about `name` with `value`; None where nothing is."""
    return next((rule for rule in (*NAMES, *VALUES) if rule.name == name and rule.when(value)), None)
