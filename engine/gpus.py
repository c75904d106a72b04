"""The NVIDIA GPUs of this machine, asked through NVML by ctypes: no package, no CUDA context, a few milliseconds."""

from __future__ import annotations

import ctypes
from typing import Any

from msgspec import Struct

from engine.vllm_args.machine import Gpu

_TEXT_BYTES = 96  # NVML's own bound for names and versions
_MOST_LINKS = 18  # NVLink ports of a Hopper GPU


class Gpus(Struct, frozen=True, kw_only=True):
    """What NVML shows. No GPU and no driver: empty."""

    driver: str = ""
    gpus: tuple[Gpu, ...] = ()


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def read_gpus(library: Any | None = None) -> Gpus:  # Any: ctypes.CDLL, or a test's own NVML
    """All GPUs, whatever CUDA_VISIBLE_DEVICES says; empty where there is no driver. Source: NVML API reference, R580."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1") if library is None else library
    except OSError:
        return Gpus()
    if nvml.nvmlInit_v2() != 0:
        return Gpus()
    try:
        count = ctypes.c_uint(0)
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return Gpus(driver=_driver(nvml))
        gpus = (_read(nvml, index) for index in range(count.value))
        return Gpus(driver=_driver(nvml), gpus=tuple(gpu for gpu in gpus if gpu is not None))
    finally:
        nvml.nvmlShutdown()


def _driver(nvml: Any) -> str:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    return text.value.decode() if nvml.nvmlSystemGetDriverVersion(text, _TEXT_BYTES) == 0 else ""


def _read(nvml: Any, index: int) -> Gpu | None:
    """One GPU; None where it is there but does not answer (fallen off the bus, another container's)."""
    handle = ctypes.c_void_p()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) != 0:
        return None
    name, memory = ctypes.create_string_buffer(_TEXT_BYTES), _Memory()
    if nvml.nvmlDeviceGetName(handle, name, _TEXT_BYTES) != 0 or nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) != 0:
        return None
    return Gpu(index=index, name=name.value.decode(), total_bytes=memory.total, free_bytes=memory.free, nvlinks=_links(nvml, handle))


def _links(nvml: Any, handle: Any) -> int | None:
    """Active NVLink ports; None where the first one cannot be asked."""
    n_active, state = 0, ctypes.c_uint(0)
    for link in range(_MOST_LINKS):
        if nvml.nvmlDeviceGetNvLinkState(handle, link, ctypes.byref(state)) != 0:
            return None if link == 0 else n_active
        n_active += state.value
    return n_active
