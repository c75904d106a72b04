"""A pasted vLLM command is read as people write it; the report is true, and its profile starts."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from engine.api import EngineSetupError
from engine.vllm_args import plan
from engine.vllm_args.command_line import parse
from engine.vllm_args.doctor import Finding, Report, examine
from engine.vllm_args.toml import toml

WILD = r"""
CUDA_VISIBLE_DEVICES=0,1,2,3 python -m vLLM.entrypoints.api_server \
    --model Qwen/Qwen2.5-72B-Instruct-AWQ --tensor-parallel-size 4 \
    --max-num-seqs 256 --max-seq-len 8192 --enforce-eager --disable-log-stats \
    --gpu-memory-utilization 0.95 --enable-prefix-caching --quantization awq \
    --draft-model Qwen/Qwen2.5-0.5B-Instruct --num-draft-tokens 5 --speculative-temperature 0.8 \
    --max-num-batched-tokens 2048 --port 8000 --host 0.0.0.0
"""


def found(report: Report, written: str) -> Finding:
    return next(finding for finding in report.findings if finding.written == written)


def values(text: str) -> dict[str, Any]:
    return {flag.name: flag.value for flag in parse(text).flags}


def test_the_command_of_the_wild_is_read() -> None:
    command = parse(WILD)
    assert command.program == "vLLM.entrypoints.api_server"
    assert command.model == "Qwen/Qwen2.5-72B-Instruct-AWQ"
    assert command.environment == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert len(command.flags) == 14


@pytest.mark.parametrize(
    ("written", "exists", "verdict", "word"),
    [
        ("-m vLLM.entrypoints.api_server", False, "gone", "case-sensitive"),
        ("--tensor-parallel-size", True, "helps", "same model"),
        ("--max-num-seqs", True, "neutral", "voice"),
        ("--max-seq-len", False, "never", "never a vLLM flag"),
        ("--enforce-eager", True, "hurts", "21.6 -> 87.7 ms"),
        ("--disable-log-stats", True, "hurts", "metric"),
        ("--gpu-memory-utilization", True, "risky", "CUDA graphs"),
        ("--enable-prefix-caching", True, "helps", "245 -> 46 ms"),
        ("--quantization", True, "neutral", "checkpoint"),
        ("--draft-model", False, "never", "does not exist"),
        ("--num-draft-tokens", False, "never", "does not exist"),
        ("--speculative-temperature", False, "never", "does not exist"),
        ("--max-num-batched-tokens", True, "helps", "long prompt"),
        ("--port", True, "neutral", "HTTP server"),
    ],
)
def test_each_flag_of_the_wild_is_judged(written: str, exists: bool, verdict: str, word: str) -> None:
    finding = found(examine(WILD), written)
    assert (finding.exists, finding.verdict) == (exists, verdict)
    assert word in str(finding)


@pytest.mark.parametrize(
    ("flags", "verdict", "figure"),
    [
        ("--max-num-batched-tokens 512", "hurts", "2,212 ms"),
        ("--max-num-batched-tokens 4096", "helps", "4,096 is measured"),
        ("--long-prefill-token-threshold 256", "hurts", "998 with 256"),
        ("--long-prefill-token-threshold 1024", "helps", "492 -> 307 ms"),
        ("--no-async-scheduling", "hurts", "106 -> 126 ms"),
        ("--async-scheduling", "helps", "6.7 -> 4.9 ms"),
        ("--max-cudagraph-capture-size 512", "helps", "twice max_num_seqs"),
        ("--scheduling-policy priority", "helps", "354 -> 90 ms"),
        ('--speculative-config \'{"method": "ngram", "num_speculative_tokens": 4}\'', "hurts", "5.0 -> 11.5 ms"),
        ('--speculative-config \'{"method": "eagle3", "model": "org/e", "num_speculative_tokens": 3}\'', "helps", "draft tokens"),
    ],
)
def test_a_value_is_judged_by_what_was_measured(flags: str, verdict: str, figure: str) -> None:
    finding = found(examine(f"vllm serve org/m {flags}"), flags.split()[0])
    assert finding.verdict == verdict
    assert figure in str(finding)


def test_replacements_are_named() -> None:
    report = examine(WILD)
    assert found(report, "--max-seq-len").instead == "--max-model-len"
    assert found(report, "--draft-model").instead == "--speculative-config"
    assert found(report, "--port").instead == "server.port"
    assert found(report, "-m vLLM.entrypoints.api_server").instead == "vllm serve MODEL"


def planned(report: Report) -> dict[str, Any]:
    """The profile, through the gate that a real start goes through."""
    tree = tomllib.loads(report.profile)["llm"]
    return plan(tree["model"], tree["vllm"], device="cuda", context_tokens=tree["context_tokens"]).arguments


def test_the_profile_of_the_wild_starts() -> None:
    arguments = planned(examine(WILD))
    assert arguments["tensor_parallel_size"] == 4
    assert arguments["max_model_len"] == 8192
    assert arguments["speculative_config"] == {"method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct", "num_speculative_tokens": 3}
    assert arguments["scheduling_policy"] == "priority"
    assert arguments["gpu_memory_utilization"] == 0.9
    assert "gpu_memory_utilization = 0.9  # the command had 0.95" in examine(WILD).profile
    assert "quantization" not in arguments
    assert "enforce_eager" not in arguments


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve org/m",
        "/opt/venv/bin/vllm serve org/m -tp 2 -O3",
        "python3 -m vllm.entrypoints.openai.api_server --model=org/m --max-model-len=8k",
        "docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.26.0 --model org/m --no-enable-prefix-caching",
        "--model org/m --enforce-eager",
        "vllm serve --model org/m --compilation-config.cudagraph_mode FULL --compilation-config.level 3",
        'vllm serve org/m --speculative-config \'{"method": "eagle3", "model": "org/e", "num_speculative_tokens": 3}\'',
        "vllm serve org/m --scheduling-policy fcfs --max-num-batched-tokens 65536 --quantization int8 --tokenizer-mode slow",
    ],
)
def test_any_command_gives_a_profile_that_starts(text: str) -> None:
    report = examine(text)
    assert parse(text).model == "org/m"
    planned(report)


def test_values_are_read_as_vllm_reads_them() -> None:
    assert values("vllm serve m --max-model-len 8k --max-num-seqs=1K") == {"max_model_len": 8000, "max_num_seqs": 1024}
    assert values("vllm serve m -tp 4 -O2 --no-enable-prefix-caching --enforce-eager --swap-space 4") == {
        "tensor_parallel_size": 4,
        "optimization_level": 2,
        "enable_prefix_caching": False,
        "enforce_eager": True,
        "swap_space": 4,
    }
    assert values("vllm serve m --compilation-config.a 1 --compilation-config.b x") == {"compilation_config": {"a": 1, "b": "x"}}
    assert values("vllm serve m --max_num_seqs 8 --async-scheduling true") == {"max_num_seqs": 8, "async_scheduling": True}


def test_a_switch_does_not_eat_the_model() -> None:
    assert parse("vllm serve --enforce-eager org/m").model == "org/m"


def test_a_missing_model_is_reported() -> None:
    (finding,) = examine("vllm serve --max-model-len 8192").findings[1:]
    assert (finding.verdict, finding.instead) == ("risky", "vllm serve MODEL")
    assert len(examine("--max-model-len 8192").findings) == 1, "bare flags are a question about flags"


def test_a_second_model_is_reported() -> None:
    assert found(examine("vllm serve org/m other"), "other").verdict == "never"


def test_an_unknown_flag_gets_its_likeness() -> None:
    finding = found(examine("vllm serve m --max-num-sequences 4"), "--max-num-sequences")
    assert not finding.exists
    assert "--max-num-seqs" in finding.instead


def test_a_release_can_be_asked_about() -> None:
    text = "vllm serve m --max-num-queued-reqs 64"
    assert not found(examine(text, "0.26.0"), "--max-num-queued-reqs").exists
    assert found(examine(text, "0.33.0"), "--max-num-queued-reqs").exists


@pytest.mark.parametrize("text", ["", "rm -rf /", "vllm bench", "uvicorn app:app", "'unclosed"])
def test_what_is_no_vllm_command_is_refused(text: str) -> None:
    with pytest.raises(EngineSetupError):
        examine(text)


@pytest.mark.parametrize("value", [True, 0, 1.5, 'a "b" \\ \n 你好', [1, "x"], {"a b": {"c": [True]}, "d": "e"}])
def test_toml_comes_back_as_it_went(value: Any) -> None:
    assert tomllib.loads(f"x = {toml(value)}")["x"] == value


def test_toml_has_no_null() -> None:
    with pytest.raises(EngineSetupError):
        toml(None)
