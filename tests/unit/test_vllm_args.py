"""Settings become vLLM's arguments; what is stale, wrong or harmful is refused with the reason and the remedy."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.api import EngineSetupError
from engine.vllm_args import Device, Plan, plan, rules, signatures
from engine.vllm_args.arguments import DEVICE, OPTIONAL, SHARED

RELEASES = signatures.table().releases


def made(section: dict[str, Any], device: Device = "cuda", **more: Any) -> Plan:
    return plan("org/model", section, device=device, context_tokens=4096, **more)


def test_the_table_covers_the_releases() -> None:
    assert (RELEASES[0], RELEASES[-1]) == ("0.26.0", "0.33.0")


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_what_we_set_exists_in_every_release(release: str, device: Device) -> None:
    known = signatures.names("arguments", release)
    assert {"model", "max_model_len", *SHARED, *DEVICE[device]} - OPTIONAL <= known
    made({}, device, known=known)


@pytest.mark.parametrize("release", RELEASES)
def test_what_the_adapter_calls_exists_in_every_release(release: str) -> None:
    assert {"prompt", "sampling_params", "request_id", "priority"} <= signatures.names("generate", release)
    assert {"temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "output_kind", "repetition_penalty"} <= signatures.names(
        "sampling", release
    )


def test_a_release_between_two_counts_as_the_lower() -> None:
    assert signatures.names("arguments", "0.26.3") == signatures.names("arguments", "0.26.0")
    assert signatures.names("arguments", "0.99") == signatures.names("arguments", "0.33.0")
    assert signatures.names("arguments", "0.1") == signatures.names("arguments", "0.26.0")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_num_seqs", None),
        ("max_num_partial_prefills", "only up to vLLM 0.26.0"),
        ("max_num_queued_reqs", "only from vLLM 0.29.0"),
        ("nonsense", None),
    ],
)
def test_the_releases_of_an_argument_are_told(name: str, words: str | None) -> None:
    assert signatures.span("arguments", name) == words


def test_latency_settings_are_explicit() -> None:
    arguments = made({}).arguments
    assert arguments["max_num_seqs"] == 64
    assert arguments["max_num_batched_tokens"] == 4096
    assert arguments["scheduling_policy"] == "priority"
    assert arguments["max_model_len"] == 4096
    assert arguments["disable_log_stats"] is False
    assert "enforce_eager" not in arguments


def test_a_cpu_gets_the_settings_that_were_measured_there() -> None:
    planned = made({}, "cpu")
    assert planned.arguments["enforce_eager"] is True
    assert planned.arguments["block_size"] == 32
    assert planned.environment["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert planned.environment["OMP_NUM_THREADS"] == "1"
    assert made({}, "cpu", threads=2).environment["OMP_NUM_THREADS"] == "2"


def test_the_operator_has_the_last_word() -> None:
    planned = made({"max_num_seqs": 32, "kv_cache_dtype": "fp8", "performance_mode": "balanced"})
    assert planned.arguments["max_num_seqs"] == 32
    assert planned.arguments["kv_cache_dtype"] == "fp8"
    assert "performance_mode" not in planned.optional  # asked for: no longer ours to leave out


def test_our_own_keys_do_not_reach_vllm() -> None:
    planned = made(
        {"thinking": True, "template": {"tone": "warm"}, "sampling": {"top_k": 20}, "canary_s": 3, "hung_s": 4, "open_requests": 9}
    )
    assert planned.template == {"enable_thinking": True, "tone": "warm"}
    assert planned.sampling == {"top_k": 20}
    assert (planned.canary_s, planned.hung_s, planned.open_requests) == (3.0, 4.0, 9)
    assert set(planned.arguments) <= signatures.names("arguments")


def test_thinking_is_off_unless_asked_for() -> None:
    assert made({}).template == {"enable_thinking": False}


def test_a_local_folder_keeps_the_hub_out(tmp_path: Path) -> None:
    assert plan(str(tmp_path), {}, device="cpu", context_tokens=512).environment["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in made({}).environment


def test_compiled_graphs_live_in_the_cache_folder() -> None:
    assert made({}, cache_path=Path("/var/cache/stretto")).environment["VLLM_CACHE_ROOT"] == "/var/cache/stretto/vllm"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"enforce_eager": True}, ["ITL 21.6 -> 87.7 ms", 'allow = ["enforce_eager"]']),
        ({"max_seq_len": 8192}, ["llm.vllm.max_seq_len = 8192", "never a vLLM flag", "use max_model_len"]),
        ({"disable_log_stats": True}, ["every vLLM metric"]),
        ({"enable_prefix_caching": False}, ["245 ms instead of 46 ms"]),
        ({"quantization": "int8"}, ["no name that vLLM knows", "fp8"]),
        ({"draft_model": "x", "num_draft_tokens": 5}, ["llm.vllm.draft_model", "llm.vllm.num_draft_tokens", "use speculative_config"]),
        ({"scheduling_policy": "fcfs"}, ["drafts and warm-ups", "use priority"]),
        ({"max_num_partial_prefills": 4}, ["did nothing"]),
        ({"tokenizer_mode": "slow"}, ["fast tokenizer"]),
        ({"max_num_batched_tokens": 16384}, ["every speaker waits", "use 4096"]),
        ({"enable_log_requests": True}, ["conversations into the log"]),
        ({"max_num_sequences": 3}, ["no such argument", "did you mean max_num_seqs"]),
        ({"port": 8000}, ["vLLM's own HTTP server"]),
        ({"template": "chatml"}, ["llm.vllm.template must be a table; got 'chatml'"]),
        ({"max_model_len": 8192}, ["set llm.context_tokens alone"]),
        ({"max_num_seqs": 64, "max_num_batched_tokens": 32}, ["one token for each reply"]),
    ],
)
def test_bad_settings_are_refused_with_a_reason(section: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(EngineSetupError) as caught:
        made(section)
    for word in words:
        assert word in str(caught.value)


def test_a_setting_of_another_release_is_refused_with_its_releases() -> None:
    with pytest.raises(EngineSetupError, match=r"does not have it \(only from vLLM 0\.29\.0\)"):
        made({"max_num_queued_tokens": 20_000}, known=signatures.names("arguments", "0.26.0"))
    made({"max_num_queued_tokens": 20_000}, known=signatures.names("arguments", "0.33.0"))


def test_harm_can_be_allowed_for_a_measurement() -> None:
    assert made({"enforce_eager": True, "allow": ["enforce_eager"]}).arguments["enforce_eager"] is True
    with pytest.raises(EngineSetupError):  # nothing makes a flag exist
        made({"max_seq_len": 1, "allow": ["max_seq_len"]})


@pytest.mark.parametrize("rule", [*rules.NAMES, *rules.VALUES], ids=lambda rule: f"{rule.name}-{rule.verdict}")
def test_every_rule_speaks_of_a_known_or_a_declared_unknown_flag(rule: rules.Rule) -> None:
    exists = rule.name in signatures.names("arguments")
    assert exists or rule.verdict in {"gone", "never"}
    if rule.instead and rule.instead.replace("_", "").isalpha() and "_" in rule.instead:
        assert rule.instead in signatures.names("arguments")
    assert rule.says


def test_quantization_names_that_we_praise_exist_everywhere() -> None:
    for name in ("fp8", "awq", "gptq", "awq_marlin", "gptq_marlin", "compressed-tensors", "modelopt"):
        assert all(name in signatures.names("quantization", release) for release in RELEASES)
    assert "int8" not in signatures.names("quantization")


EAGLE = {"method": "eagle3", "model": "org/head", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    "given",
    [
        EAGLE,
        {"method": "mtp", "num_speculative_tokens": 1},
        {"method": "draft_model", "model": "org/small", "num_speculative_tokens": 2, "draft_tensor_parallel_size": 1},
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "prompt_lookup_min": 2},
    ],
)
def test_speculation_that_vllm_knows_is_passed_on(given: dict[str, Any]) -> None:
    assert plan("m", {"speculative_config": given}, device="cuda", context_tokens=4096).arguments["speculative_config"] == given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("eagle3", "expected a table such as"),
        ({"method": "medusa"}, "method is 'medusa'; expected eagle3, eagle, draft_model, mtp, ngram"),
        ({"method": "eagle3", "num_speculative_tokens": 3}, "model is missing; eagle3 needs it"),
        ({**EAGLE, "num_speculative_tokens": 15}, "is 15; expected 1 to 8"),
        ({**EAGLE, "num_speculative_tokens": True}, "is True; expected 1 to 8"),
        ({**EAGLE, "prompt_lookup_maximum": 4}, "prompt_lookup_maximum is no key of eagle3"),
        ({"method": "ngram", "num_speculative_tokens": 4}, "prompt_lookup_max is missing"),
        ({"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2, "prompt_lookup_min": 3}, "expected 1 <= min <= max"),
    ],
)
def test_speculation_that_cannot_be_meant_is_refused(given: Any, words: str) -> None:
    with pytest.raises(EngineSetupError, match=re.escape(words)):
        plan("m", {"speculative_config": given}, device="cuda", context_tokens=4096)


def test_a_loader_is_one_of_vllms() -> None:
    assert plan("m", {"load_format": "fastsafetensors"}, device="cuda", context_tokens=4096).arguments["load_format"] == "fastsafetensors"
    with pytest.raises(EngineSetupError, match=r"load_format is 'nvme'; vLLM has auto, .*runai_streamer"):
        plan("m", {"load_format": "nvme"}, device="cuda", context_tokens=4096)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"n": 8}, "sampling.n: several replies at once slow down everyone else's first token"),
        ({"logprobs": 20}, "log-probabilities slow down"),
        ({"stop": ["\n\nUser:"]}, "use stop_token_ids"),
        ({"temperature": 0.1}, "set turn.temperature"),
        ({"best_of": 2}, "sampling.best_of is not taken; expected top_k"),
        ({"top_k": 0.5}, "sampling.top_k is 0.5; expected a whole number"),
        ({"stop_token_ids": [2, "</s>"]}, "expected a list of token ids"),
    ],
)
def test_sampling_is_bounded(sampling: dict[str, Any], words: str) -> None:
    with pytest.raises(EngineSetupError, match=re.escape(words)):
        plan("m", {"sampling": sampling}, device="cuda", context_tokens=4096)


def test_replies_may_end_by_more_token_ids() -> None:
    wanted = {"top_k": 20, "stop_token_ids": [2, 7]}
    assert plan("m", {"sampling": wanted}, device="cuda", context_tokens=4096).sampling == wanted


def test_compiled_graphs_are_kept_in_our_own_folder() -> None:
    kept = plan("m", {}, device="cuda", context_tokens=4096, cache_path=Path("/cache"))
    assert kept.environment["VLLM_CACHE_ROOT"] == "/cache/vllm"
