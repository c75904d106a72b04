"""Which ears are chosen, what is downloaded for them, and what an operator is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import build, build_listening
from engine.api import EngineSetupError
from engine.settings import AsrSettings, EngineSettings, FakeSettings, ListenSettings, LlmSettings, TtsSettings
from engine.weights import SILERO, SMART_TURN, WHISPER_BASE

FAKES = ListenSettings(vad="fake", end_of_turn="fake")


def settings(tmp_path: Path, asr: AsrSettings, listen: ListenSettings = FAKES, llm: str = "fake") -> EngineSettings:
    return EngineSettings(
        cache_path=tmp_path,
        llm=LlmSettings(engine=llm),  # type: ignore[arg-type]  # a choice of the test
        tts=TtsSettings(engines=("fake",)),
        asr=asr,
        listen=listen,
        fake=FakeSettings(heard=("Hello there.",), asr_final_ms=0, asr_partial_ms=0),
    )


@pytest.fixture
def without_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_listening, "missing_packages", lambda: ["ctranslate2"])


@pytest.fixture
def with_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_listening, "missing_packages", list)


@pytest.mark.usefixtures("without_extra")
def test_without_the_extra_a_gateway_does_not_listen_and_says_why(tmp_path: Path) -> None:
    assert build_listening.choose_recognizer(settings(tmp_path, AsrSettings(), llm="llamacpp"))[0] == "off"
    ears, note = build_listening.build_ears(settings(tmp_path, AsrSettings(), llm="llamacpp"))
    assert ears is None
    assert "pip install 'stretto[asr]'" in note


@pytest.mark.usefixtures("with_extra")
def test_auto_listens_with_whisper_beside_a_real_model_only(tmp_path: Path) -> None:
    assert build_listening.choose_recognizer(settings(tmp_path, AsrSettings(), llm="llamacpp"))[0] == "whisper"
    assert build_listening.choose_recognizer(settings(tmp_path, AsrSettings()))[0] == "off"
    assert build_listening.choose_recognizer(settings(tmp_path, AsrSettings(engine="whisper")))[0] == "whisper"


@pytest.mark.parametrize(
    ("asr", "listen", "needed"),
    [
        (AsrSettings(engine="whisper"), ListenSettings(), (WHISPER_BASE, SILERO, SMART_TURN)),
        (AsrSettings(engine="whisper", model="/models/large"), ListenSettings(end_of_turn="off"), (SILERO,)),
        (AsrSettings(engine="openai", url="http://x/v1"), ListenSettings(), (SILERO, SMART_TURN)),
        (AsrSettings(engine="fake"), FAKES, ()),
        (AsrSettings(engine="off"), ListenSettings(), ()),
    ],
)
def test_only_what_is_used_is_downloaded(tmp_path: Path, asr: AsrSettings, listen: ListenSettings, needed: tuple[object, ...]) -> None:
    assert build_listening.needed_by_ears(settings(tmp_path, asr, listen)) == needed
    assert build.needed_weights(settings(tmp_path, asr, listen)) == needed


@pytest.mark.parametrize(
    ("asr", "listen", "told"),
    [
        (AsrSettings(engine="whisper"), FAKES, "model.bin is missing"),
        (AsrSettings(engine="fake"), ListenSettings(end_of_turn="off"), "silero_vad.onnx is missing"),
        (AsrSettings(engine="fake"), ListenSettings(vad="fake"), "smart-turn-v3.2-cpu.onnx is missing"),
        (AsrSettings(engine="openai"), FAKES, "asr.url is empty"),
        (AsrSettings(engine="vllm"), FAKES, "asr.url is empty"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, asr: AsrSettings, listen: ListenSettings, told: str) -> None:
    with pytest.raises(EngineSetupError, match=told):
        build_listening.build_ears(settings(tmp_path, asr, listen))


@pytest.mark.parametrize("engine", ["openai", "vllm"])
def test_remote_recognizers_are_built_without_asking_them(tmp_path: Path, engine: str) -> None:
    asr = AsrSettings(engine=engine, url="http://127.0.0.1:9/v1")  # type: ignore[arg-type]  # a choice of the test
    ears, note = build_listening.build_ears(settings(tmp_path, asr))
    assert ears is not None
    assert ears.recognizer.name == f"{engine}-asr"
    assert ears.recognizer.name in note


async def test_ears_start_and_stop_with_the_other_engines(tmp_path: Path) -> None:
    engines = build.build(settings(tmp_path, AsrSettings(engine="fake")))
    assert engines.ears is not None
    assert "ears: fake" in engines.notes[-1]
    async with engines.running():
        assert set(engines.health()) == {"llm", "tts", "asr", "vad", "end_of_turn"}
        assert engines.is_ready
    assert not engines.is_ready


def test_a_gateway_without_ears_has_none_and_says_so(tmp_path: Path) -> None:
    engines = build.build(settings(tmp_path, AsrSettings(engine="off")))
    assert engines.ears is None
    assert set(engines.health()) == {"llm", "tts"}
    assert "not understood" in engines.notes[-1]
