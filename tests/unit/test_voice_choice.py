"""A reply in two languages changes its voice for clauses, never for a word."""

from __future__ import annotations

import pytest

from engine.api import Voice
from gateway.voice_choice import Choice, VoiceChoice, units_by_script

VOICES = tuple(
    Voice(id=voice_id, languages=languages, engine=voice_id.partition("/")[0])
    for voice_id, languages in (
        ("edge/aria", ("en",)),
        ("piper/joe", ("en",)),
        ("kokoro/xiaobei", ("zh",)),
        ("edge/xiaoxiao", ("zh",)),
        ("edge/nanami", ("ja",)),
    )
)
EN, ZH, JA = Choice("edge/aria", "en"), Choice("edge/xiaoxiao", "zh"), Choice("edge/nanami", "ja")


def choices(home: Choice, *segments: str) -> list[Choice]:
    choice = VoiceChoice(VOICES, home.voice, home.language)
    return [choice.choose(segment) for segment in segments]


@pytest.mark.parametrize(
    ("home", "segments", "expected"),
    [
        (EN, ["Hello there.", "你好，很高兴见到你。", "And hello again."], [EN, ZH, EN]),
        (ZH, ["你好。", "This is a whole English sentence.", "再见。"], [ZH, EN, ZH]),
        (ZH, ["我喜欢 Python 和 Linux。", "OK.", "iPhone 15!", "好的。"], [ZH, ZH, ZH, ZH]),
        (EN, ["My friend 小明 lives in Beijing now.", "Yes."], [EN, EN]),
        (EN, ["苹果"], [ZH]),
        (EN, ["The word is 你好世界朋友们大家好。"], [ZH]),
        (EN, ["你好，世界。", "123, 456!", "…", "Well, hello."], [ZH, ZH, ZH, EN]),
        (ZH, ["A whole English clause here,", "OK,", "and another English clause."], [EN, EN, EN]),
        (EN, ["これは日本語です。", "漢字だけじゃない。"], [JA, JA]),
        (ZH, ["これは日本語の文です。"], [JA]),
        (EN, ["Привет, как дела?"], [EN]),  # nobody reads it: the chain says so
        (JA, ["漢字", "日本語を話します。", "An entire sentence in English."], [JA, JA, EN]),
        (EN, ["", "  ", "42"], [EN, EN, EN]),
        (EN, ["Ｆｕｌｌ ｗｉｄｔｈ letters are Latin."], [EN]),
    ],
)
def test_the_voice_changes_with_the_clause(home: Choice, segments: list[str], expected: list[Choice]) -> None:
    assert choices(home, *segments) == expected


def test_the_operators_choice_for_a_language_wins() -> None:
    choice = VoiceChoice(VOICES, "edge/aria", "en", {"zh": "kokoro/xiaobei", "ja": "gone/voice"})
    assert choice.choose("你好，世界。") == Choice("kokoro/xiaobei", "zh")
    assert choice.choose("これは日本語です。") == JA


def test_a_voice_of_another_engine_speaks_when_the_own_has_none() -> None:
    assert VoiceChoice(VOICES, "piper/joe", "en-US").choose("你好，世界。").voice in ("kokoro/xiaobei", "edge/xiaoxiao")


def test_the_home_language_is_the_voices_when_the_session_says_another() -> None:
    assert VoiceChoice(VOICES, "edge/xiaoxiao", "en").choose("你好。") == ZH
    assert VoiceChoice(VOICES, "unknown/voice", "zh-CN").choose("你好。") == Choice("unknown/voice", "zh")


def test_length_is_counted_as_it_sounds() -> None:
    assert units_by_script("Hi 你好 42!") == {"LATIN": 2, "CJK": 6}
