"""Which engines are chosen, and what an operator is told when one cannot be built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from engine import build
from engine.api import EngineSetupError
from engine.fake import ScriptedModel, ScriptedVoice
from engine.llm.vllm.embedded import check_model
from engine.settings import AsrSettings, EngineSettings, LlmSettings, TtsSettings
from engine.weights import PIPER_JOE, SMOLLM2, Weights

FAKE_VOICE = TtsSettings(engines=("fake",))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


class Machine:
    """What is found here, instead of what is."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def has(self, *, gpu: bool, packages: tuple[str, ...]) -> None:
        self._monkeypatch.setattr(build, "_has_gpu", lambda: gpu)
        self._monkeypatch.setattr(build, "_is_installed", lambda module: module in packages)


def settings(tmp_path: Path, engine: LlmSettings, tts: TtsSettings = FAKE_VOICE) -> EngineSettings:
    return EngineSettings(cache_path=tmp_path, llm=engine, tts=tts, asr=AsrSettings(engine="off"))


@pytest.mark.parametrize(
    ("gpu", "packages", "llm", "chosen", "why"),
    [
        (False, (), LlmSettings(), "llamacpp", "no NVIDIA GPU was found"),
        (False, ("vllm",), LlmSettings(), "llamacpp", "no NVIDIA GPU was found"),
        (True, ("vllm",), LlmSettings(), "vllm", "an NVIDIA GPU was found"),
        (True, (), LlmSettings(), "llamacpp", "vLLM is not installed"),
        (True, ("vllm",), LlmSettings(model="/models/x.gguf"), "llamacpp", "GGUF"),
        (True, (), LlmSettings(model="Qwen/Qwen3-8B"), "vllm", "an NVIDIA GPU was found"),
        (False, ("vllm",), LlmSettings(model="Qwen/Qwen3-8B"), "vllm", "no GGUF file"),
        (False, (), LlmSettings(engine="vllm"), "vllm", "llm.engine says so"),
        (True, ("vllm",), LlmSettings(engine="llamacpp"), "llamacpp", "llm.engine says so"),
        (True, ("vllm",), LlmSettings(engine="fake"), "fake", "llm.engine says so"),
    ],
)
def test_the_machine_and_the_settings_choose(
    machine: Machine, tmp_path: Path, gpu: bool, packages: tuple[str, ...], llm: LlmSettings, chosen: str, why: str
) -> None:
    machine.has(gpu=gpu, packages=packages)
    got, reason = build.choose_model(settings(tmp_path, llm))
    assert got == chosen
    assert why in reason


@pytest.mark.parametrize(
    ("llm", "tts", "needed"),
    [
        (LlmSettings(engine="fake"), FAKE_VOICE, ()),
        (LlmSettings(engine="llamacpp"), TtsSettings(), (SMOLLM2, PIPER_JOE)),
        (LlmSettings(engine="llamacpp", model="/x.gguf"), TtsSettings(engines=("espeak",)), ()),
        (LlmSettings(engine="vllm"), TtsSettings(), (PIPER_JOE,)),
    ],
)
def test_only_what_is_used_is_downloaded(tmp_path: Path, llm: LlmSettings, tts: TtsSettings, needed: tuple[Weights, ...]) -> None:
    assert build.needed_weights(settings(tmp_path, llm, tts)) == needed


@pytest.mark.parametrize(
    ("llm", "tts", "module", "extra"),
    [
        (LlmSettings(engine="llamacpp"), FAKE_VOICE, "xllamacpp", "llamacpp"),
        (LlmSettings(engine="vllm"), FAKE_VOICE, "vllm", "vllm"),
        (LlmSettings(engine="fake"), TtsSettings(engines=("piper",)), "piper", "local-tts"),
        (LlmSettings(engine="fake"), TtsSettings(engines=("espeak",)), "espeakng_loader", "local-tts"),
    ],
)
def test_a_missing_package_is_named_with_the_pip_command(
    machine: Machine, tmp_path: Path, llm: LlmSettings, tts: TtsSettings, module: str, extra: str
) -> None:
    machine.has(gpu=False, packages=())
    with pytest.raises(EngineSetupError) as failure:
        build.build(settings(tmp_path, llm, tts))
    assert module in str(failure.value)
    assert f"pip install 'stretto[{extra}]'" in str(failure.value)


def test_a_fault_of_an_engine_that_nobody_named_says_why_it_was_chosen(machine: Machine, tmp_path: Path) -> None:
    machine.has(gpu=False, packages=("vllm",))
    with pytest.raises(EngineSetupError, match=r"xllamacpp is missing.* llamacpp was chosen because no NVIDIA GPU was found .*--gpus all"):
        build.build(settings(tmp_path, LlmSettings()))
    with pytest.raises(EngineSetupError) as failure:
        build.build(settings(tmp_path, LlmSettings(engine="llamacpp")))
    assert "chosen" not in str(failure.value)


def test_missing_weights_are_named(machine: Machine, tmp_path: Path) -> None:
    machine.has(gpu=False, packages=("xllamacpp", "piper", "onnxruntime", "vllm"))
    for llm, tts, name in (
        (LlmSettings(engine="llamacpp"), FAKE_VOICE, "SmolLM2-135M-Instruct.Q4_1.gguf is missing"),
        (LlmSettings(engine="fake"), TtsSettings(engines=("piper",)), "en_US-joe-medium.onnx is missing"),
        (LlmSettings(engine="vllm"), FAKE_VOICE, "llm.model is empty"),
    ):
        with pytest.raises(EngineSetupError, match=name):
            build.build(settings(tmp_path, llm, tts))


def test_notes_tell_the_model_the_voices_and_that_nobody_speaks_chinese(tmp_path: Path) -> None:
    made = build.build(settings(tmp_path, LlmSettings(engine="fake"), TtsSettings(engines=("espeak",))))
    notes = "\n".join(made.notes)
    assert "fake" in made.notes[0]
    assert "llm.engine says so" in made.notes[0]
    assert "espeak" in notes
    assert "no Chinese voice" in notes
    assert not made.is_ready


@pytest.mark.parametrize(
    ("llm", "told"),
    [
        (LlmSettings(engine="openai"), "llm.endpoints is empty"),
        (LlmSettings(engine="openai", endpoints=("gpu:8000",)), "expected http://host:port/v1"),
        (LlmSettings(engine="openai", endpoints=("http://gpu/v1",), key_variable="NO_SUCH_KEY"), "NO_SUCH_KEY, which is empty or not set"),
    ],
)
def test_chat_servers_that_cannot_be_asked_are_told(tmp_path: Path, llm: LlmSettings, told: str) -> None:
    with pytest.raises(EngineSetupError) as caught:
        build.build(settings(tmp_path, llm))
    assert told in str(caught.value)


def test_chat_servers_are_built_with_their_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEA_KEY", "secret")
    llm = LlmSettings(engine="openai", model="sea-7b", endpoints=("http://a/v1", "unix:/run/b.sock"), key_variable="SEA_KEY")
    assert build.build(settings(tmp_path, llm)).model.name == "sea-7b at http://a/v1, unix:/run/b.sock"


def test_a_key_is_isolated_only_where_the_engine_can(tmp_path: Path) -> None:
    asked = structs.replace(settings(tmp_path, LlmSettings(engine="fake")), must_isolate=True)
    assert build.build(asked).model.facts.isolates
    cloud = LlmSettings(engine="openai", endpoints=("http://127.0.0.1:1/v1",), model="large")
    with pytest.raises(EngineSetupError, match=r"keys\.NAME\.isolate.*large at .* cannot keep a prefix cache for it alone: use vLLM"):
        build.build(structs.replace(asked, llm=cloud))
    assert build.build(structs.replace(asked, llm=structs.replace(cloud, dialect="vllm"))).model.facts.isolates


async def test_an_engine_that_fails_to_close_keeps_no_other_from_closing(tmp_path: Path) -> None:
    class Clinging(ScriptedModel):
        async def close(self) -> None:
            raise OSError("the folder is gone")

    voice = ScriptedVoice()
    async with build.Engines(Clinging(), voice, ()).running():
        assert voice.health().ready
    assert not voice.health().ready


def test_a_model_that_cannot_be_meant_is_refused_before_it_is_loaded(machine: Machine, tmp_path: Path) -> None:
    machine.has(gpu=False, packages=("vllm", "httpx"))
    (tmp_path / "config.json").write_text(
        '{"num_hidden_layers": 2, "num_attention_heads": 9, "hidden_size": 576, "max_position_embeddings": 2048}'
    )
    for engine in ("vllm", "vllm-serve"):
        long = LlmSettings(engine=engine, model=str(tmp_path), context_tokens=9000)
        with pytest.raises(EngineSetupError, match=r"llm\.context_tokens is 9000, the model was made for 2048"):
            build.build(settings(tmp_path, long))
        odd = LlmSettings(engine=engine, model=str(tmp_path), context_tokens=2048, vllm={"tensor_parallel_size": 2})
        with pytest.raises(EngineSetupError, match="9 attention heads"):
            build.build(settings(tmp_path, odd))


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("", "llm.model is empty"),
        ("/no/such/folder", "the folder '/no/such/folder', which does not exist"),
        ("{empty}", "has no config.json"),
    ],
)
def test_a_model_folder_that_is_none_is_told(tmp_path: Path, model: str, word: str) -> None:
    with pytest.raises(EngineSetupError, match=word):
        check_model(model.format(empty=tmp_path))


def test_a_loader_whose_package_is_missing_is_told_at_once(machine: Machine, tmp_path: Path) -> None:
    machine.has(gpu=False, packages=("vllm",))
    fast = LlmSettings(engine="vllm", model="org/model", vllm={"load_format": "runai_streamer"})
    with pytest.raises(EngineSetupError, match="its Python package runai_model_streamer is missing"):
        build.build(settings(tmp_path, fast))
    machine.has(gpu=False, packages=("vllm", "runai_model_streamer"))
    assert build.build(settings(tmp_path, fast)).model.name.startswith("model")


@pytest.mark.parametrize(
    ("extra", "words"), [({"n": 2}, "several replies"), ({"stream": False}, "for each request"), ({"logprobs": True}, "slow down everyone")]
)
def test_fields_that_stretto_decides_are_not_taken_from_extra(tmp_path: Path, extra: dict[str, Any], words: str) -> None:
    cloud = LlmSettings(engine="openai", endpoints=("http://127.0.0.1:1/v1",), model="large", extra=extra)
    with pytest.raises(EngineSetupError, match=words):
        build.build(settings(tmp_path, cloud))
