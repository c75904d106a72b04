"""What a local voice reads, and where its sentences are cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import EngineSetupError
from engine.tts.local import LocalVoices
from engine.tts.piper import Piper
from engine.tts.piper.clauses import FIRST_PHONEMES, split_clauses
from engine.tts.script import can_read, primary, readable, scripts_of
from engine.worker import WorkerSpec
from gateway.config import TurnSettings

ENGLISH = scripts_of("en")


@pytest.mark.parametrize(
    "text", ["Hello.", "42", "100 %", "Ça va, José?", "I met 王 in the old town yesterday.", "Ｈｅｌｌｏ", "a", "µ-law audio"]
)
def test_an_english_voice_reads_latin_and_digits(text: str) -> None:
    assert can_read(text, ENGLISH)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "...",
        "!?",
        "😀",
        "👍🏽 🎉",
        "你好。",
        "Привет",
        "こんにちは",
        "안녕하세요",
        "我要 OK",
        "\u200b",
        "—",
        "\ue000",
        "ok 你好吗",
    ],
)
def test_an_english_voice_refuses_other_scripts_and_what_has_no_letter(text: str) -> None:
    assert not can_read(text, ENGLISH)


@pytest.mark.parametrize(
    ("language", "text"), [("ru_RU", "Привет, Anna"), ("el", "Καλημέρα"), ("zh", "你好"), ("ja", "これはペンです"), ("hi", "नमस्ते दुनिया")]
)
def test_a_voice_reads_its_own_script_and_latin(language: str, text: str) -> None:
    assert can_read(text, scripts_of(language))
    assert can_read("Hello", scripts_of(language))


def test_foreign_signs_are_left_out_of_a_readable_text() -> None:
    assert readable("I met 王 there 😀, it cost 5 €.", ENGLISH) == "I met   there  , it cost 5 €."
    assert readable("Ç'est «ça»\nnow", ENGLISH) == "Ç'est «ça»\nnow"


@given(st.text())
def test_what_is_readable_stays_readable_and_has_no_foreign_letter(text: str) -> None:
    kept = readable(text, ENGLISH)
    assert readable(kept, ENGLISH) == kept
    assert not any(0x4E00 <= ord(sign) <= 0x9FFF for sign in kept)


def test_primary_subtags() -> None:
    assert [primary(tag) for tag in ("en_US", "en-us", "EN", "pt-BR")] == ["en", "en", "en", "pt"]


@given(st.lists(st.sampled_from(["a", " ", ",", ";", "ˈ"]), max_size=200), st.booleans())
def test_clauses_joined_are_the_sentence(phonemes: list[str], is_first: bool) -> None:
    clauses = list(split_clauses(phonemes, is_first))
    assert [phoneme for clause in clauses for phoneme in clause] == phonemes
    assert all(clauses)
    for clause in clauses[:-1]:
        assert clause[-1] == " "
        assert clause[-2] in ",;"


def test_a_sentence_is_cut_early_first_and_seldom_later() -> None:
    sentence = list("xxxxxxxxxxxxxxx, ") * 12
    lengths = [len(clause) for clause in split_clauses(sentence, is_first=True)]
    assert lengths[0] == 17
    assert min(lengths[1:]) >= 17
    assert lengths[1] >= 48
    assert next(split_clauses(sentence, is_first=False)) == sentence[:51]


def test_short_beginnings_and_short_ends_are_not_cut_off() -> None:
    assert list(split_clauses(list("oh, this is what it was"), is_first=True)) == [list("oh, this is what it was")]
    end = "x" * (FIRST_PHONEMES - 2)
    assert len(list(split_clauses(list("this is what it was, " + end), is_first=True))) == 1


def test_a_missing_or_broken_voice_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError, match=r"nowhere\.onnx is missing"):
        Piper([tmp_path / "nowhere.onnx"])
    model = tmp_path / "en_US-x.onnx"
    model.write_bytes(b"x")
    with pytest.raises(EngineSetupError, match=r"en_US-x\.onnx\.json is missing"):
        Piper([model])
    description = tmp_path / "en_US-x.onnx.json"
    description.write_text("{")
    with pytest.raises(EngineSetupError, match="not a Piper voice's description"):
        Piper([model])
    description.write_text('{"espeak": {"voice": "de"}}')
    assert Piper([model]).voices()[0].languages == ("de",)
    with pytest.raises(EngineSetupError, match="each with its own name"):
        Piper([model, model])
    with pytest.raises(EngineSetupError, match="0 Piper voices"):
        Piper([])


def test_silence_before_the_first_sound_is_trimmed_and_silence_alone_is_kept() -> None:
    stage = pytest.importorskip("engine.tts.piper.stage", reason="needs the extra local-tts")
    sound = np.concatenate([np.zeros(1000), np.ones(500) * 0.5, np.zeros(300)]).astype(np.float32)
    trimmed = stage.trim_lead(sound, 22_050)
    assert len(trimmed) == 1800 - (1000 - 330)
    assert len(stage.trim_lead(np.zeros(100, np.float32), 22_050)) == 100
    assert len(stage.trim_lead(sound[1000:], 22_050)) == 800


def test_a_voice_that_hangs_is_ended_before_the_listener_gives_the_segment_up() -> None:
    spec = WorkerSpec(name="x", factory="a:b", silence_s=600)
    worker = LocalVoices("x", [], spec)._worker.spec
    assert worker.silence_s + 2 * worker.heartbeat_s < TurnSettings().first_chunk_s
