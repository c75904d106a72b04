"""Every profile in `configs/` is valid, starts on vLLM 0.26 to 0.33, and fits on the GPUs that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import Struct

from engine.vllm_args import Device, plan, rules, signatures
from engine.vllm_args.fit import GIB, Shape, check_context, check_parallel, fit
from gateway.config import load

CONFIGS = Path(__file__).parents[2] / "configs"
PROFILES = sorted(path.name for path in CONFIGS.glob("production-*.toml"))


class Machine(Struct, frozen=True, kw_only=True):
    """What a profile says that it needs: memory of one GPU, the model's shape."""

    gpu_gib: int
    shape: Shape


def qwen(layers: int, heads: int, kv_heads: int, weights_gb: float) -> Shape:
    return Shape(layers=layers, heads=heads, kv_heads=kv_heads, head_dim=128, context_tokens=32768, weights_bytes=int(weights_gb * 1e9))


BIG = qwen(80, 64, 8, 145)
MACHINES = {
    "production-7b.toml": Machine(gpu_gib=80, shape=qwen(28, 28, 4, 15.2)),
    "production-7b-awq.toml": Machine(gpu_gib=24, shape=qwen(28, 28, 4, 5.6)),
    "production-7b-gptq.toml": Machine(gpu_gib=24, shape=qwen(28, 28, 4, 8.9)),
    "production-32b-fp8.toml": Machine(gpu_gib=80, shape=qwen(64, 64, 8, 33)),
    "production-72b-2gpu.toml": Machine(gpu_gib=139, shape=BIG),
    "production-72b-4gpu.toml": Machine(gpu_gib=80, shape=BIG),
    "production-72b-fp8-2gpu.toml": Machine(gpu_gib=139, shape=BIG),
    "production-72b-fp8-4gpu.toml": Machine(gpu_gib=80, shape=BIG),
}


def test_every_profile_names_its_machine() -> None:
    assert set(PROFILES) == set(MACHINES)


@pytest.mark.parametrize("name", [*PROFILES, "cpu.toml"])
@pytest.mark.parametrize("release", signatures.table().releases)
def test_a_profile_starts_on_every_release(name: str, release: str) -> None:
    llm = load(CONFIGS / name, {}).llm
    device: Device = "cpu" if name == "cpu.toml" else "cuda"
    made = plan(llm.model or "m", llm.vllm, device=device, context_tokens=llm.context_tokens, known=signatures.names("arguments", release))
    assert set(made.arguments) - made.optional <= signatures.names("arguments", release)


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_fits_on_its_machine(name: str) -> None:
    settings, machine = load(CONFIGS / name, {}), MACHINES[name]
    section = settings.llm.vllm
    parallel = section["tensor_parallel_size"]
    assert check_parallel(machine.shape, parallel) is None
    assert check_context(machine.shape, settings.llm.context_tokens) is None
    verdict = fit(
        machine.shape,
        gpu_bytes=machine.gpu_gib * GIB,
        tensor_parallel=parallel,
        utilization=section["gpu_memory_utilization"],
        conversations=settings.session.max_sessions,
        tokens=settings.session.context_tokens + settings.turn.max_tokens,
        arguments=section,
    )
    assert verdict.fits, verdict.because


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_holds_nothing_that_we_warn_of(name: str) -> None:
    for key, value in load(CONFIGS / name, {}).llm.vllm.items():
        rule = rules.judge(key, value)
        assert rule is None or rule.verdict in {"helps", "neutral"}, f"{key}: {rule.says if rule else ''}"


@pytest.mark.parametrize("name", [*PROFILES, "cpu.toml"])
def test_every_setting_has_its_reason(name: str) -> None:
    lines = (CONFIGS / name).read_text("utf-8").splitlines()
    for above, line in zip(["", *lines], lines, strict=False):
        if " = " in line and not line.startswith("#") and not line.startswith(("model", "engine")):
            assert "#" in line or above.startswith("#"), line
