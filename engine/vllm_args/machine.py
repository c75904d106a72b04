"""What can be said about the GPUs before a model is loaded.

Pure. Tensor parallelism waits for its slowest member in every layer: a set of unequal GPUs lost its owners 15 %.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

OLDEST_DRIVER = 580  # vLLM's wheels from 0.20 on bring CUDA 13, whose first driver this is


class Gpu(Struct, frozen=True, kw_only=True):
    """One GPU as NVML shows it. `nvlinks` counts active links; None where NVML cannot tell."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int
    nvlinks: int | None = None


def chosen(gpus: Sequence[Gpu], tensor_parallel: int, visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that vLLM will take: the first `tensor_parallel` of those that CUDA_VISIBLE_DEVICES names (None: all)."""
    if visible is not None and visible.strip():
        order = [int(word) for word in visible.split(",") if word.strip().isdigit()]
        gpus = [gpu for index in order for gpu in gpus if gpu.index == index]
    return tuple(gpus[:tensor_parallel])


def check_count(gpus: Sequence[Gpu], tensor_parallel: int) -> str | None:
    """Why there are too few GPUs; None where there are enough."""
    if len(gpus) < tensor_parallel:
        return f"tensor_parallel_size is {tensor_parallel}, but {len(gpus)} GPUs can be seen (CUDA_VISIBLE_DEVICES, driver, container)"
    return None


def check_same(gpus: Sequence[Gpu], all_gpus: Sequence[Gpu] = ()) -> str | None:
    """Why these GPUs do not belong together; None where they do. Names the odd ones, and equal ones to take instead where there are."""
    kinds = Counter((gpu.name, round(gpu.total_bytes / (1 << 30))) for gpu in gpus)
    if len(kinds) < 2:
        return None
    (usual, _), *_ = kinds.most_common(1)
    odd = [gpu for gpu in gpus if (gpu.name, round(gpu.total_bytes / (1 << 30))) != usual]
    named = ", ".join(f"GPU {gpu.index} is {gpu.name} ({gpu.total_bytes >> 30} GiB)" for gpu in odd)
    text = f"the GPUs differ: {named}, the others are {usual[0]} ({usual[1]} GiB); all of them would run at the slowest one's speed"
    equal = [gpu.index for gpu in (all_gpus or gpus) if (gpu.name, round(gpu.total_bytes / (1 << 30))) == usual]
    if len(equal) >= len(gpus):
        return f"{text}. Use CUDA_VISIBLE_DEVICES={','.join(str(index) for index in equal[: len(gpus)])}"
    return f"{text}. {len(equal)} are equal: lower tensor_parallel_size"


def check_driver(version: str) -> str | None:
    """Why the driver is too old; None where it is not, or where its version cannot be read."""
    major = version.split(".")[0]
    if major.isdigit() and int(major) < OLDEST_DRIVER:
        return f"the NVIDIA driver is {version}; vLLM's CUDA 13 wheels need {OLDEST_DRIVER} or later"
    return None


def check_links(gpus: Sequence[Gpu]) -> str | None:
    """A warning where several GPUs talk without NVLink."""
    if len(gpus) > 1 and any(gpu.nvlinks == 0 for gpu in gpus):
        return "the GPUs have no NVLink between them: each layer's exchange goes over PCIe, and TTFT grows with tensor_parallel_size"
    return None
