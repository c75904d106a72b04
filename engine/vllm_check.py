"""What `stretto check` says about vLLM before it is started: model folder, heads, memory, GPUs, driver, disk.

Reads files and NVML; imports no vLLM and loads nothing. Each remark is one line for an operator.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from engine.api import EngineSetupError
from engine.gpus import Gpus, read_gpus
from engine.vllm_args import Plan
from engine.vllm_args.fit import Shape, check_context, check_parallel, check_quantization, fit, read_shape
from engine.vllm_args.machine import check_count, check_driver, check_links, check_same, chosen

COMPILE_CACHE_BYTES = 2 << 30  # compiled graphs of one model and plan


class Remark(Struct, frozen=True, kw_only=True):
    """A `fault` keeps vLLM from starting, a `note` is worth reading."""

    kind: Literal["fine", "note", "fault"]
    text: str


def inspect(
    plan: Plan,
    *,
    conversations: int,
    tokens: int,
    cache_path: Path,
    machine: Gpus | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Remark]:
    """Everything that can be known about `plan` without loading it, for `conversations` of `tokens` each."""
    environment = os.environ if environment is None else environment
    machine = read_gpus() if machine is None else machine
    parallel = _parallel(plan)
    on_gpu = plan.device == "cuda"
    gpus = chosen(machine.gpus, parallel, environment.get("CUDA_VISIBLE_DEVICES"))
    if on_gpu:
        yield from _gpus(machine, parallel, gpus)
    else:
        yield Remark(kind="note", text="runs on the CPU, for tests and trials: llama.cpp answers three times as fast there")
    shape = yield from _model(plan, parallel)
    if shape is not None and on_gpu and gpus:
        smallest = min(gpu.total_bytes for gpu in gpus)
        yield _memory(plan, shape, smallest, parallel, conversations, tokens)
    yield _disk(cache_path)


def sure_faults(plan: Plan, machine: Gpus | None = None, environment: Mapping[str, str] | None = None) -> list[str]:
    """What cannot be meant, told before minutes of loading. Weights and memory are left to vLLM: it knows formats that this does not."""
    environment = os.environ if environment is None else environment
    faults: list[str | None] = []
    if plan.device == "cuda" and (machine := read_gpus() if machine is None else machine).gpus:
        gpus = chosen(machine.gpus, _parallel(plan), environment.get("CUDA_VISIBLE_DEVICES"))
        faults += [check_count(gpus, _parallel(plan)) or check_same(gpus, machine.gpus), check_driver(machine.driver)]
    folder = Path(plan.model).expanduser()
    if (folder / "config.json").is_file():
        shape = read_shape(_json(folder / "config.json"), 1)
        faults += [check_parallel(shape, _parallel(plan)), check_quantization(shape, plan.arguments.get("quantization"))]
        if "hf_overrides" not in plan.arguments and environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") != "1":
            faults.append(check_context(shape, plan.arguments["max_model_len"]))
    return [text for text in faults if text is not None]


def _parallel(plan: Plan) -> int:
    return int(plan.arguments.get("tensor_parallel_size", 1))


def _gpus(machine: Gpus, parallel: int, gpus: tuple[Any, ...]) -> Iterator[Remark]:
    if (text := check_count(gpus, parallel)) is not None or (text := check_same(gpus, machine.gpus)) is not None:
        yield Remark(kind="fault", text=text)
    else:
        yield Remark(kind="fine", text=f"{len(gpus)} x {gpus[0].name}, driver {machine.driver}")
    if (text := check_driver(machine.driver)) is not None:
        yield Remark(kind="fault", text=text)
    if (text := check_links(gpus)) is not None:
        yield Remark(kind="note", text=text)


def _model(plan: Plan, parallel: int) -> Any:  # Any: an iterator that returns a Shape or None
    folder = Path(plan.model).expanduser()
    if not folder.is_dir():
        if plan.model.startswith(("/", ".", "~")):
            yield Remark(kind="fault", text=f"the model folder {plan.model} does not exist")
        else:
            yield Remark(kind="note", text=f"{plan.model} is not on this machine: vLLM downloads it, and its size is not checked here")
        return None
    try:
        shape = read_shape(_json(folder / "config.json"), _weights_bytes(folder))
        if not _has_template(folder):
            raise EngineSetupError("the model has no chat template: it is a base model, or its tokenizer_config.json lacks it")
    except EngineSetupError as error:
        yield Remark(kind="fault", text=str(error))
        return None
    wanted = plan.arguments.get("quantization")
    checks = (
        check_parallel(shape, parallel),
        check_context(shape, plan.arguments["max_model_len"]),
        check_quantization(shape, wanted),
    )
    faults = [text for text in checks if text is not None]
    yield from (Remark(kind="fault", text=text) for text in faults)
    if not faults:
        kind = shape.quantization or "not quantized"
        yield Remark(kind="fine", text=f"{plan.model}: {shape.weights_bytes / 1e9:.1f} GB of weights, {kind}, {shape.heads} heads")
    return shape


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise EngineSetupError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise EngineSetupError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise EngineSetupError(f"{path} is not a JSON object")
    return found


def _weights_bytes(folder: Path) -> int:
    sizes = [path.stat().st_size for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern)]
    if not sizes:
        raise EngineSetupError(f"there are no weights in {folder}: expected *.safetensors")
    return sum(sizes)


def _has_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file() or (folder / "chat_template.json").is_file():
        return True
    return bool(_json(folder / "tokenizer_config.json").get("chat_template"))


def _memory(plan: Plan, shape: Shape, gpu_bytes: int, parallel: int, conversations: int, tokens: int) -> Remark:
    verdict = fit(
        shape,
        gpu_bytes=gpu_bytes,
        tensor_parallel=parallel,
        utilization=float(plan.arguments.get("gpu_memory_utilization", 0.9)),
        conversations=conversations,
        tokens=tokens,
        arguments=plan.arguments,
    )
    if verdict.room_bytes == 0:
        return Remark(kind="fault", text=f"does not fit, because {verdict.because}")
    if not verdict.fits:  # it starts, and conversations beyond the room lose their cached prefix
        return Remark(kind="note", text=f"does not fit whole, because {verdict.because}; beyond that, history is read again in each turn")
    return Remark(kind="fine", text=f"fits; {verdict.because}")


def _disk(cache_path: Path) -> Remark:
    existing = next(folder for folder in (cache_path, *cache_path.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    if free < COMPILE_CACHE_BYTES:
        return Remark(
            kind="note", text=f"{existing} has {free / 1e9:.1f} GB free; vLLM's compiled graphs need about {COMPILE_CACHE_BYTES / 1e9:.0f}"
        )
    return Remark(kind="fine", text=f"compiled graphs are kept in {cache_path / 'vllm'}")
