"""Memory, heads, quantization and GPUs are judged before minutes of loading are spent."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import EngineSetupError
from engine.vllm_args.fit import GIB, Shape, check_context, check_parallel, check_quantization, fit, kv_bytes_per_token, read_shape
from engine.vllm_args.machine import Gpu, check_count, check_driver, check_links, check_same, chosen

QWEN_72B = {
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "hidden_size": 8192,
    "max_position_embeddings": 32768,
}
SMOL = {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "hidden_size": 576, "head_dim": 64}
BF16_72B = 145 * 10**9


def shape(config: dict[str, Any] = QWEN_72B, weights_bytes: int = BF16_72B) -> Shape:
    return read_shape(config, weights_bytes)


def judged(gpu_gib: int = 139, tensor_parallel: int = 2, conversations: int = 64, tokens: int = 4096, **arguments: Any) -> Any:
    return fit(
        shape(),
        gpu_bytes=gpu_gib * GIB,
        tensor_parallel=tensor_parallel,
        utilization=0.9,
        conversations=conversations,
        tokens=tokens,
        arguments=arguments,
    )


def test_a_token_of_the_72b_takes_320_kib() -> None:
    assert kv_bytes_per_token(shape(), 1) == 320 * 1024
    assert kv_bytes_per_token(shape(), 2) == 160 * 1024
    assert kv_bytes_per_token(shape(), 16) == kv_bytes_per_token(shape(), 8)  # eight heads do not split further
    assert kv_bytes_per_token(shape(), 1, "fp8") == 160 * 1024


def test_a_72b_fits_on_two_h200() -> None:
    verdict = judged()
    assert verdict.fits
    assert verdict.kv_bytes == 40 * GIB
    assert verdict.conversations >= 64
    assert "64 conversations of 4096 tokens" in verdict.because


def test_a_72b_does_not_fit_on_one_h200_unless_fp8() -> None:
    assert not judged(tensor_parallel=1).fits
    assert "weights take" in judged(tensor_parallel=1).because
    assert judged(tensor_parallel=1, quantization="fp8", conversations=16).fits


def test_too_many_conversations_are_told_how_many_fit() -> None:
    verdict = judged(gpu_gib=80, tensor_parallel=2, conversations=64)
    assert not verdict.fits
    assert f"room for {verdict.conversations}" in verdict.because


def test_the_text_part_of_a_nested_config_is_read() -> None:
    assert read_shape({"text_config": QWEN_72B, "quantization_config": {"quant_method": "awq"}}, 1).quantization == "awq"


def test_a_config_without_heads_is_refused() -> None:
    with pytest.raises(EngineSetupError, match="num_attention_heads"):
        read_shape({"num_hidden_layers": 2}, 1)


@pytest.mark.parametrize(
    ("config", "parallel", "word"),
    [(SMOL, 2, "9 attention heads; possible: [1]"), (SMOL, 3, None), (QWEN_72B, 4, None), (QWEN_72B, 16, None)],
)
def test_gpus_must_divide_the_heads(config: dict[str, Any], parallel: int, word: str | None) -> None:
    said = check_parallel(shape(config), parallel)
    assert said is None if word is None else said is not None and word in said


def test_a_context_longer_than_the_models_is_told() -> None:
    assert check_context(shape(), 32768) is None
    assert "made for 32768" in (check_context(shape(), 40000) or "")


@pytest.mark.parametrize(
    ("checkpoint", "wanted", "word"),
    [
        ("", None, None),
        ("awq", None, None),
        ("awq", "awq_marlin", None),
        ("awq", "gptq", "leave the setting out"),
        ("fp8", "fp8", None),
        ("", "fp8", None),
        ("", "awq", "not quantized"),
    ],
)
def test_quantization_must_be_the_checkpoints(checkpoint: str, wanted: str | None, word: str | None) -> None:
    config = {**QWEN_72B, **({"quantization_config": {"quant_method": checkpoint}} if checkpoint else {})}
    said = check_quantization(shape(config), wanted)
    assert said is None if word is None else said is not None and word in said


def gpu(index: int, name: str = "NVIDIA H200", gib: int = 139, nvlinks: int | None = 18) -> Gpu:
    return Gpu(index=index, name=name, total_bytes=gib * GIB, free_bytes=gib * GIB, nvlinks=nvlinks)


def test_equal_gpus_are_fine() -> None:
    assert check_same([gpu(0), gpu(1)]) is None
    assert check_same([]) is None


def test_the_odd_gpu_is_named_and_a_remedy_given() -> None:
    all_gpus = [gpu(0), gpu(1), gpu(2, "NVIDIA A100-SXM4-80GB", 80), gpu(3), gpu(4)]
    said = check_same(all_gpus[:4], all_gpus) or ""
    assert "GPU 2 is NVIDIA A100-SXM4-80GB (80 GiB)" in said
    assert "CUDA_VISIBLE_DEVICES=0,1,3,4" in said
    assert "lower tensor_parallel_size" in (check_same(all_gpus[:4], all_gpus[:4]) or "")


def test_the_same_model_with_other_memory_is_odd() -> None:
    assert "GPU 1" in (check_same([gpu(0), gpu(1, gib=80), gpu(2)]) or "")


def test_visible_devices_choose_and_order() -> None:
    gpus = [gpu(number) for number in range(4)]
    assert [each.index for each in chosen(gpus, 2, None)] == [0, 1]
    assert [each.index for each in chosen(gpus, 2, "3,1,0")] == [3, 1]
    assert "2 GPUs can be seen" in (check_count(chosen(gpus, 4, "0,1"), 4) or "")
    assert check_count(gpus, 4) is None


def test_an_old_driver_is_told() -> None:
    assert "580 or later" in (check_driver("550.54.15") or "")
    assert check_driver("580.65.06") is None
    assert check_driver("unknown") is None


def test_missing_links_are_told() -> None:
    assert "PCIe" in (check_links([gpu(0, nvlinks=0), gpu(1, nvlinks=0)]) or "")
    assert check_links([gpu(0, nvlinks=0)]) is None
    assert check_links([gpu(0, nvlinks=None), gpu(1)]) is None
