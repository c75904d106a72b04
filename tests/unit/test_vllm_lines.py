"""Pasted vLLM lines as the web has them: each is found, read as vLLM's own parser reads it, and its values are judged.

What vLLM 0.32's parser says to each line of `VALUES` was tried with it; what it finds out later is marked.
"""

from __future__ import annotations

import tomllib

import pytest

from engine.api import EngineSetupError
from engine.vllm_args import plan, values
from engine.vllm_args.command_line import parse
from engine.vllm_args.doctor import Report, examine

DOCKER = """docker run --runtime nvidia --gpus all --name vllm-openai -v ~/.cache/huggingface:/root/.cache/huggingface \\
    --env "HUGGING_FACE_HUB_TOKEN=<secret>" -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model org/m -tp 2"""
MPL = "vllm serve org/m \\\n  --max_model_len 8192 \\  \n  # as the model card says\n  --tensor_parallel_size 2"
LINES = [
    ("vllm serve org/m -tp 2 -q fp8", "tensor_parallel_size", 2),
    ("CUDA_VISIBLE_DEVICES=0,1 vllm serve org/m --tensor-parallel-size=2", "tensor_parallel_size", 2),
    ("env CUDA_VISIBLE_DEVICES=0,1 vllm serve org/m --tensor-parallel-size='2'", "tensor_parallel_size", 2),
    ("export HF_HOME=/x; vllm serve org/m --port 8000 > vllm.log 2>&1 &", "port", 8000),
    ("nohup vllm serve org/m --dtype half >log.txt 2>&1 &", "dtype", "half"),
    ("cd /srv && . venv/bin/activate && vllm serve org/m --gpu-memory-utilization=.9 | tee log", "gpu_memory_utilization", 0.9),
    (MPL, "tensor_parallel_size", 2),
    ("vllm serve org/m ^\r\n --max-model-len 8k", "max_model_len", 8000),
    (DOCKER, "tensor_parallel_size", 2),
    ("docker run -it --rm --shm-size 16g vllm/vllm-openai bash -c 'vllm serve org/m --max-model-len 4096'", "max_model_len", 4096),
    ("podman run --device nvidia.com/gpu=all --entrypoint vllm vllm/vllm-openai:v0.26.0 serve org/m -dp 2", "data_parallel_size", 2),
    ("docker run --gpus all rocm/vllm python -m vllm.entrypoints.openai.api_server --model org/m -tp 2", "tensor_parallel_size", 2),
    ("sudo docker run -d vllm/vllm-openai:latest org/m --seed 1", "seed", 1),
    ("python -m vllm.entrypoints.openai.api_server --model org/m --served-model-name a b", "served_model_name", ["a", "b"]),
    ("python -m vLLM.entrypoints.api_server --model org/m --tensor-parallel-size 2", "tensor_parallel_size", 2),
    ("python3 /opt/vllm/vllm/entrypoints/openai/api_server.py --model org/m --max-num-seqs 64", "max_num_seqs", 64),
    ("uv run vllm serve org/m --hf-overrides '{\"a\": 1}'", "hf_overrides", {"a": 1}),
    ("vllm serve org/m --compilation-config.a FULL -cc.b.c true", "compilation_config", {"a": "FULL", "b": {"c": True}}),
    ("vllm serve org/m \u2013tensor-parallel-size 2 --dtype \u201cauto\u201d", "tensor_parallel_size", 2),
    ('["vllm", "serve", "org/m", "--gpu-memory-utilization", "0.95"]', "gpu_memory_utilization", 0.95),
    ('command: ["--model", "org/m", "-tp", "2"]', "tensor_parallel_size", 2),
    ("- --model=org/m\n- --tensor-parallel-size=2", "tensor_parallel_size", 2),
    ("vllm serve org/m --tensor-parallel 2", "tensor_parallel_size", 2),
    ("vllm serve org/m --no-enable-prefix-caching", "enable_prefix_caching", False),
    ("vllm serve org/m -O3", "optimization_level", 3),
    ("python -m vllm.entrypoints.cli.main serve org/m -O 2", "optimization_level", 2),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "value"), LINES, ids=[str(n) for n in range(len(LINES))])
def test_a_line_of_the_wild_is_read(text: str, name: str, value: object) -> None:
    command = parse(text)
    assert command.model == "org/m"
    assert command.leftover == ()
    found = {flag.name: flag.value for flag in command.flags}[name]
    assert found == value
    tree = tomllib.loads(examine(text).profile)["llm"]
    plan(tree["model"], tree["vllm"], device="cuda", context_tokens=tree["context_tokens"])


def said(flags: str) -> Report:
    return examine(f"vllm serve org/m {flags}")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ("--tensor-parallel-size two", "got 'two', expected a whole number from 1 to 1,024"),
        ("--tensor-parallel-size 2.0", "got '2.0', expected a whole number"),
        ("--tensor-parallel-size 0", "got '0', expected a whole number from 1"),  # vLLM: later
        ("--tensor-parallel-size --port 8000", "needs a value; got none, expected a whole number"),
        ("--max-num-seqs 1k", "got '1k', expected a whole number"),
        ("--max-num-batched-tokens 8kb", "got '8kb', expected a whole number from 1 to 100,000,000 (also with k, M or G)"),
        ("--max-model-len long", "(also with k, M or G, auto)"),
        ("--gpu-memory-utilization 0,9", "got '0,9', expected a number from 0.01 to 1"),
        ("--gpu-memory-utilization 95", "got '95', expected a number from 0.01 to 1"),  # vLLM: later
        ("--dtype fp16", "got 'fp16', expected one of auto, bfloat16, float, float16"),
        ("--kv-cache-dtype fp16", "-> float16"),
        ("--scheduling-policy prio", "got 'prio', expected one of fcfs, priority -> priority"),
        ("--quantization awqq", "-> awq"),  # vLLM: later
        ("-O9", "got '9', expected one of 0, 1, 2, 3"),  # vLLM: later
        ('--compilation-config {"cudagraph_mode":"FULL"}', "expected a JSON object, in single quotes"),
        ("--compilation-config '[1]'", "got '[1]', expected a JSON object"),
        ("--limit-mm-per-prompt image=1", "got 'image=1', expected JSON"),
        ("--enable-prefix-caching true", "takes no value; got 'true', expected the flag alone"),
        ("--enforce-eager=True", "takes no value; got 'True'"),
        ("--no-headless", "has no --no- form"),
        ("--cudagraph-capture-sizes 1,2,4", "got '1,2,4', expected a whole number"),
        ("--port 99999", "got '99999', expected a whole number from 0 to 65,535"),  # vLLM: later
        ("-tp2", "-> -tp 2"),
        ("--no-tensor-parallel-size 2", "is no flag"),
    ],
)
def test_a_value_that_vllm_would_not_take_is_told(flags: str, words: str) -> None:
    report = said(flags)
    assert any(words in str(finding) and not finding.exists for finding in report.findings), [str(each) for each in report.findings]
    assert "two" not in report.profile
    tomllib.loads(report.profile)


@pytest.mark.parametrize(
    "flags",
    [
        "--max-model-len 8.5k", "--max-model-len auto", "--max-model-len -1", "--served-model-name a b", "--allowed-origins '[\"*\"]'",
        "--api-key a b", "--kv-cache-memory-bytes 2G", "--max-logprobs -1", "--cudagraph-capture-sizes 1 2 4", "--api-server-count 2",
        "--collect-detailed-traces all", "--tool-call-parser my_own", "--headless", "-ep", "--device-memory-utilization 0.8",
    ],
)  # fmt: skip
def test_a_value_that_vllm_takes_is_let_through(flags: str) -> None:
    assert all(finding.exists for finding in said(flags).findings), [str(each) for each in said(flags).findings]


def test_what_a_shell_fills_in_is_not_judged_and_not_in_the_profile() -> None:
    report = examine("vllm serve $MODEL --tensor-parallel-size $TP --port ${PORT:-8000}")
    assert [finding.says for finding in report.findings] == ["is filled in by your shell: not judged"] * 2
    assert "$TP" not in report.profile


def test_a_file_of_flags_is_said_not_to_be_judged() -> None:
    assert "--config vllm.yaml: brings more flags, which are not judged here" in str(said("--config vllm.yaml").findings[0])


def test_of_a_flag_given_twice_the_last_one_counts() -> None:
    report = said("-tp 2 -tp 4")
    assert "the last one counts" in str(report.findings[0])
    assert "tensor_parallel_size = 4" in report.profile


def test_gpus_that_the_line_names_are_counted() -> None:
    text = "CUDA_VISIBLE_DEVICES=0,1 vllm serve org/m -tp {}"
    assert "names 2 GPU(s); the command's parallel sizes want 4" in str(examine(text.format(4)).findings[0])
    assert not any("CUDA" in finding.written for finding in examine(text.format(2)).findings)


@pytest.mark.parametrize(
    "flags",
    [
        "-tp 4 -tp 2",
        "-tp 2 --data-parallel-size 4 --data-parallel-size-local 1 --data-parallel-address 10.0.0.1",
        "-tp 2 -pp 2 --nnodes 2 --node-rank 0",
        "-tp 2 -pp 2 --distributed-executor-backend ray",
    ],
)
def test_neither_overruled_sizes_nor_gpus_of_other_machines_are_missed(flags: str) -> None:
    report = examine(f"CUDA_VISIBLE_DEVICES=0,1 vllm serve org/m {flags}")
    assert not any("CUDA" in finding.written for finding in report.findings)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tensor_parallel_size", "two", "got 'two', expected a whole number"),
        ("max_num_seqs", 4.5, "got 4.5, expected a whole number"),
        ("max_num_seqs", True, "got True, expected a whole number"),
        ("dtype", "fp16", "got 'fp16', expected one of auto"),
        ("enable_expert_parallel", "yes", "got 'yes', expected true or false"),
        ("compilation_config", 3, "got 3, expected a JSON object"),
    ],
)
def test_a_profile_with_such_a_value_is_refused(name: str, value: object, words: str) -> None:
    with pytest.raises(EngineSetupError) as refused:
        plan("m", {name: value}, device="cuda", context_tokens=4096)
    assert f"llm.vllm.{name} = {value!r}: {words}" in str(refused.value)


def test_every_flag_of_the_table_says_what_it_takes() -> None:
    for name in values.table().flags:
        assert values.expected(name)
        assert values.fault(name, ("\x00",)) is not None or values.table().flags[name].kind == "text"
