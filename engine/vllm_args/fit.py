"""Does it fit: weights, and the keys and values of N conversations of L tokens, on these GPUs; and do the numbers divide.

Pure. Memory beside weights and KV cache (activations, CUDA graphs, NCCL) is estimated, on the safe side; the rest is arithmetic on the
model's `config.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from engine.api import EngineSetupError

GIB = 1 << 30
BESIDE_BYTES = 4 * GIB  # a GPU: activations of a 4,096-token step, graphs for 64 replies, communication buffers (estimated)
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "auto": 2}


class Shape(Struct, frozen=True, kw_only=True):
    """A model's dimensions. `weights_bytes` as they stand on disk; `quantization` the checkpoint's own method, empty for none."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context_tokens: int
    weights_bytes: int
    quantization: str = ""


class Fit(Struct, frozen=True, kw_only=True):
    """`fits` and why; sizes are those of one GPU. `conversations`: how many of that length there is room for."""

    fits: bool
    because: str
    weights_bytes: int
    kv_bytes: int
    room_bytes: int
    conversations: int


def read_shape(config: Mapping[str, Any], weights_bytes: int) -> Shape:
    """Dimensions out of a Hugging Face `config.json` (also of models that nest it). Raises `EngineSetupError` naming a missing key."""
    text = config.get("text_config", config)
    try:
        heads = int(text["num_attention_heads"])
        return Shape(
            layers=int(text["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or text["hidden_size"] // heads),
            context_tokens=int(text.get("max_position_embeddings", 0)),
            weights_bytes=weights_bytes,
            quantization=str((config.get("quantization_config") or {}).get("quant_method", "")),
        )
    except KeyError as error:
        raise EngineSetupError(f"config.json has no {error}; is it a language model?") from error


def kv_bytes_per_token(shape: Shape, tensor_parallel: int, kv_cache_dtype: str = "auto") -> int:
    """Bytes of one token's keys and values on one GPU; heads that do not suffice for all GPUs are copied."""
    heads = max(1, shape.kv_heads // tensor_parallel)
    return 2 * shape.layers * heads * shape.head_dim * _BYTES.get(kv_cache_dtype, 2)


def fit(
    shape: Shape, *, gpu_bytes: int, tensor_parallel: int, utilization: float, conversations: int, tokens: int, arguments: Mapping[str, Any]
) -> Fit:
    """Whether `conversations` of `tokens` each fit beside the weights on every one of `tensor_parallel` equal GPUs."""
    weights = shape.weights_bytes // tensor_parallel
    if arguments.get("quantization") == "fp8" and not shape.quantization:
        weights = int(weights * 0.55)  # linear layers halve, embeddings stay
    each = kv_bytes_per_token(shape, tensor_parallel, str(arguments.get("kv_cache_dtype", "auto"))) * tokens
    room = int(gpu_bytes * utilization) - weights - BESIDE_BYTES
    needed = each * conversations
    possible = max(0, room // each)
    fits = room >= needed
    if room <= 0:
        because = f"weights take {_gib(weights)} of the {_gib(int(gpu_bytes * utilization))} that vLLM may use on each GPU"
    else:
        because = (
            f"on each GPU: {_gib(weights)} weights + {_gib(needed)} for {conversations} conversations of {tokens} tokens"
            f" + {_gib(BESIDE_BYTES)} beside, of {_gib(int(gpu_bytes * utilization))}; room for {possible}"
        )
    return Fit(fits=fits, because=because, weights_bytes=weights, kv_bytes=needed, room_bytes=max(0, room), conversations=possible)


def check_parallel(shape: Shape, tensor_parallel: int) -> str | None:
    """Why the model cannot be split over so many GPUs; None where it can."""
    if shape.heads % tensor_parallel:
        good = [n for n in (1, 2, 4, 8) if shape.heads % n == 0]
        return f"tensor_parallel_size {tensor_parallel} does not divide the model's {shape.heads} attention heads; possible: {good}"
    if shape.kv_heads % tensor_parallel and tensor_parallel % shape.kv_heads:
        return f"tensor_parallel_size {tensor_parallel} and the model's {shape.kv_heads} key-value heads do not divide each other"
    return None


def check_context(shape: Shape, context_tokens: int) -> str | None:
    """Why the context cannot be so long; None where it can."""
    if shape.context_tokens and context_tokens > shape.context_tokens:
        return f"llm.context_tokens is {context_tokens}, the model was made for {shape.context_tokens}"
    return None


_FAMILIES = {"awq": "awq", "auto_awq": "awq", "awq_marlin": "awq", "gptq": "gptq", "auto_gptq": "gptq", "gptq_marlin": "gptq"}


def check_quantization(shape: Shape, wanted: str | None) -> str | None:
    """Why `wanted` does not go with the checkpoint; None where it does, or where nothing is wanted."""
    if not wanted:
        return None
    have = shape.quantization
    if have:
        same = _FAMILIES.get(wanted, wanted) == _FAMILIES.get(have, have)
        return None if same else f"llm.vllm.quantization is {wanted!r}, the checkpoint is {have!r}: leave the setting out"
    if wanted in _FAMILIES or wanted in {"compressed-tensors", "modelopt", "quark"}:
        return (
            f'llm.vllm.quantization is {wanted!r}, but the checkpoint is not quantized: take a checkpoint that is, or quantization = "fp8"'
        )
    return None


def _gib(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.1f} GiB"
