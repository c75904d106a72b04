"""Before minutes of loading: the model folder, the GPUs and the memory are looked at, and every fault has its sentence."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.api import Message
from engine.fake import ScriptedModel
from engine.gpus import Gpus, read_gpus
from engine.vllm_args import plan
from engine.vllm_args.fit import GIB
from engine.vllm_args.machine import Gpu
from engine.vllm_check import Remark, inspect, sure_faults
from engine.warm_up import PRIORITY, warm

CONFIG = {
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "max_position_embeddings": 32768,
}


class Nvml:
    """NVML as a library would answer: functions that fill what they are given and return 0, or an error code."""

    def __init__(self, gpus: list[tuple[str, int, int | None]], *, broken: frozenset[int] = frozenset(), driver: str = "580.65.06") -> None:
        self._gpus, self._broken, self._driver = gpus, broken, driver
        self.is_open = False

    def nvmlInit_v2(self) -> int:
        self.is_open = True
        return 0

    def nvmlShutdown(self) -> int:
        self.is_open = False
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _: int) -> int:
        text.value = self._driver.encode()
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self._gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 15 if index in self._broken else 0

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, name: Any, _: int) -> int:
        name.value = self._gpus[(handle.value or 0) - 1][0].encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total = memory._obj.free = self._gpus[(handle.value or 0) - 1][1]
        return 0

    def nvmlDeviceGetNvLinkState(self, handle: ctypes.c_void_p, link: int, state: Any) -> int:
        links = self._gpus[(handle.value or 0) - 1][2]
        if links is None or link >= links:
            return 3
        state._obj.value = 1
        return 0


def h200(nvlinks: int | None = 18) -> tuple[str, int, int | None]:
    return "NVIDIA H200", 139 * GIB, nvlinks


def test_gpus_are_read_through_nvml() -> None:
    nvml = Nvml([h200(), ("NVIDIA A100-SXM4-80GB", 80 * GIB, None)])
    read = read_gpus(nvml)
    assert read.driver == "580.65.06"
    assert [(gpu.index, gpu.name, gpu.nvlinks) for gpu in read.gpus] == [(0, "NVIDIA H200", 18), (1, "NVIDIA A100-SXM4-80GB", None)]
    assert read.gpus[1].total_bytes == 80 * GIB
    assert not nvml.is_open


def test_a_gpu_that_does_not_answer_is_left_out() -> None:
    assert [gpu.index for gpu in read_gpus(Nvml([h200(), h200()], broken=frozenset({0}))).gpus] == [1]


def test_no_driver_means_no_gpus() -> None:
    class NoDriver:
        def nvmlInit_v2(self) -> int:
            return 9

    assert read_gpus(NoDriver()) == Gpus()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    with (tmp_path / "model.safetensors").open("wb") as weights:
        weights.truncate(15 * 10**9)  # sparse: takes no disk
    return tmp_path


def machine(*names: str, driver: str = "580.65.06") -> Gpus:
    gpus = tuple(Gpu(index=n, name=name, total_bytes=80 * GIB, free_bytes=80 * GIB, nvlinks=12) for n, name in enumerate(names))
    return Gpus(driver=driver, gpus=gpus)


def looked_at(model: Path | str, section: dict[str, Any] | None = None, gpus: Gpus | None = None, **load: int) -> list[Remark]:
    made = plan(str(model), section or {}, device="cuda", context_tokens=load.pop("context", 8192))
    settings = {"conversations": 64, "tokens": 4096, **load}
    return list(inspect(made, cache_path=Path("/tmp"), machine=gpus or machine("A100"), environment={}, **settings))


def faults(remarks: list[Remark]) -> str:
    return "\n".join(remark.text for remark in remarks if remark.kind == "fault")


def test_a_good_plan_is_fine(folder: Path) -> None:
    remarks = looked_at(folder)
    assert faults(remarks) == ""
    text = "\n".join(remark.text for remark in remarks)
    assert "1 x A100, driver 580.65.06" in text
    assert "15.0 GB of weights, not quantized, 28 heads" in text
    assert "fits; on each GPU" in text


def test_each_fault_has_its_sentence(folder: Path) -> None:
    assert "does not exist" in faults(looked_at("/no/such/folder"))
    assert "does not divide the model's 28 attention heads" in faults(
        looked_at(folder, {"tensor_parallel_size": 8}, machine(*["A100"] * 8))
    )
    assert "2 GPUs can be seen" in faults(looked_at(folder, {"tensor_parallel_size": 4}, machine("A100", "A100")))
    assert "GPU 1 is L40S" in faults(looked_at(folder, {"tensor_parallel_size": 2}, machine("A100", "L40S")))
    assert "580 or later" in faults(looked_at(folder, None, machine("A100", driver="535.1")))
    assert "made for 32768" in faults(looked_at(folder, None, None, context=40_000))
    assert "not quantized" in faults(looked_at(folder, {"quantization": "awq"}))


def test_what_cannot_be_meant_is_told_before_anything_is_loaded(folder: Path) -> None:
    def told(arguments: dict[str, Any] | None = None, found: Gpus | None = None, context: int = 4096) -> str:
        made = plan(str(folder), arguments or {}, device="cuda", context_tokens=context)
        return "; ".join(sure_faults(made, found or machine("A100", "A100"), {}))

    assert told() == ""
    assert "GPU 1 is L40S" in told({"tensor_parallel_size": 2}, machine("A100", "L40S"))
    assert "2 GPUs can be seen" in told({"tensor_parallel_size": 4})
    assert "does not divide the model's 28 attention heads" in told({"tensor_parallel_size": 8}, machine(*["A100"] * 8))
    assert "made for 32768" in told(context=40_000)
    assert told({"hf_overrides": {"max_position_embeddings": 65536}}, context=40_000) == "", "the operator knows"
    assert "not quantized" in told({"quantization": "awq"})
    assert "580 or later" in told(None, machine("A100", driver="535.1"))
    assert told(None, Gpus()) == "", "where NVML does not answer, vLLM finds out"


def test_a_model_bigger_than_the_gpu_is_a_fault(folder: Path) -> None:
    with (folder / "model.safetensors").open("wb") as weights:
        weights.truncate(145 * 10**9)
    assert "does not fit, because weights take" in faults(looked_at(folder))


def test_more_conversations_than_fit_are_a_note(folder: Path) -> None:
    remarks = looked_at(folder, conversations=2000)
    assert faults(remarks) == ""
    assert any(remark.kind == "note" and "room for" in remark.text for remark in remarks)


def test_a_base_model_is_a_fault(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    assert "no chat template" in faults(looked_at(folder))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert faults(looked_at(folder)) == ""


def test_a_folder_that_is_no_model_is_a_fault(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert "no weights" in faults(looked_at(folder))
    (folder / "config.json").write_text("[")
    assert "not JSON" in faults(looked_at(folder))
    (folder / "config.json").unlink()
    assert "cannot read" in faults(looked_at(folder))


def test_a_model_to_be_downloaded_is_a_note() -> None:
    remarks = looked_at("org/model")
    assert faults(remarks) == ""
    assert any("vLLM downloads it" in remark.text for remark in remarks)


def test_a_cpu_needs_no_gpu(folder: Path) -> None:
    made = plan(str(folder), {}, device="cpu", context_tokens=4096)
    remarks: Iterator[Remark] = inspect(made, conversations=4, tokens=1000, cache_path=Path("/tmp"), machine=Gpus(), environment={})
    assert faults(list(remarks)) == ""


@pytest.mark.virtual
async def test_a_warm_up_takes_one_token_and_stands_last() -> None:
    model = ScriptedModel(["Hello."])
    await model.start()
    messages = [Message(role="system", text="Be kind. " * 40), Message(role="user", text="Hi.")]
    cold = await warm(model, messages, "w1")
    assert cold > 40
    assert await warm(model, messages, "w2") < 20
    assert {generation.priority for generation in model.requests} == {PRIORITY}
    assert {generation.sampling.max_tokens for generation in model.requests} == {1}
    await model.close()
