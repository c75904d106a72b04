"""The pure parts of Kokoro: clauses and the model's signs."""

from __future__ import annotations

import random

import pytest

from engine.api import EngineSetupError
from engine.tts.kokoro import CHINESE, ENGLISH, Kokoro
from engine.tts.kokoro.clauses import CLAUSE_PAUSE_MS, SENTENCE_PAUSE_MS, pause_ms, split
from engine.tts.kokoro.vocabulary import LONGEST, NUMBERS, numbers_of
from tests.e2e.local_engines import CACHE


@pytest.mark.parametrize(
    ("phonemes", "clauses"),
    [
        ("həlˈoʊ, hˌaʊ kæn aɪ hˈɛlp?", ["həlˈoʊ, ", "hˌaʊ kæn aɪ hˈɛlp?"]),
        ("jˈɛs, hˌaʊ kæn aɪ hˈɛlp?", ["jˈɛs, hˌaʊ kæn aɪ hˈɛlp?"]),  # the first clause would be clipped
        ("wɛl lˈɛt miː sˈiː, ðə wˈɛðɚ ɪz fˈaɪn.", ["wɛl lˈɛt miː sˈiː, ", "ðə wˈɛðɚ ɪz fˈaɪn."]),
        ("ɑː ɑː ɑː ɑː ɑː. bɪ, bɪ, bɪ, bɪ, bɪ, bɪ.", ["ɑː ɑː ɑː ɑː ɑː. ", "bɪ, bɪ, bɪ, bɪ, bɪ, bɪ."]),
        ("", [""]),
    ],
)
def test_clauses_end_at_marks(phonemes: str, clauses: list[str]) -> None:
    assert split(phonemes, 510) == clauses


def test_no_clause_is_lost_or_too_long() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        text = "".join(rng.choice("aə ˈ,.;!?—bdˌː") for _ in range(rng.randint(0, 900)))
        clauses = split(text, 100)
        assert "".join(clauses) == text
        assert all(len(clause) <= 100 for clause in clauses)


@pytest.mark.parametrize(
    ("clause", "ms"), [("a. ", SENTENCE_PAUSE_MS), ('a?" ', SENTENCE_PAUSE_MS), ("a, ", CLAUSE_PAUSE_MS), ("a ", 0), ("", 0)]
)
def test_pauses_follow_marks(clause: str, ms: int) -> None:
    assert pause_ms(clause) == ms


def test_the_models_signs() -> None:
    assert len(NUMBERS) == 114
    assert len(set(NUMBERS.values())) == 114
    assert max(NUMBERS.values()) == 177
    assert numbers_of("həlˈoʊ, ✨ 你") == [50, 83, 54, 156, 57, 135, 3, 16, 16]
    assert LONGEST + 2 == 512


def test_voices_are_listed_with_their_languages_and_strange_ones_refused() -> None:
    voices = {voice.id: voice.languages for voice in Kokoro(CACHE, (*ENGLISH, *CHINESE)).voices()}
    assert (voices["kokoro/af_heart"], voices["kokoro/zf_xiaobei"]) == (("en",), ("zh",))
    with pytest.raises(EngineSetupError, match="xx_nobody"):
        Kokoro(CACHE, ("xx_nobody",))
    with pytest.raises(EngineSetupError, match="none"):
        Kokoro(CACHE, ())
