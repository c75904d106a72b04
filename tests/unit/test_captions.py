"""What was heard of a segment, as written text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.speech.captions import heard
from gateway.speech.normalizer import normalize


def said(text: str, share: float, language: str = "en") -> str:
    return heard(text, normalize(text, language), share * 1000, 1000).text


@pytest.mark.parametrize(
    ("text", "share", "language", "expected"),
    [
        ("Hello there, my friend.", 0.0, "en", ""),
        ("Hello there, my friend.", 0.2, "en", ""),
        ("Hello there, my friend.", 0.3, "en", "Hello"),
        ("Hello there, my friend.", 0.6, "en", "Hello there,"),
        ("Hello there, my friend.", 1.0, "en", "Hello there, my friend."),
        ("Hello there, my friend. ", 1.0, "en", "Hello there, my friend. "),
        ("I don't know.", 0.4, "en", "I"),
        ("It costs $29.50 today.", 0.6, "en", "It costs"),
        ("It costs $29.50 today.", 0.95, "en", "It costs $29.50"),
        ("Say **loud** words", 0.3, "en", "Say"),
        ("Say **loud** words", 0.6, "en", "Say **loud**"),
        ("Say (yes) now", 0.4, "en", "Say"),
        ("well—known things", 0.35, "en", "well—"),
        ("你好，我们出发吧。", 0.3, "zh", "你好，"),
        ("你好，我们出发吧。", 0.45, "zh", "你好，我"),
        ("你说“好”吗", 0.5, "zh", "你说"),
        ("用Python写代码", 0.4, "zh", "用"),
    ],
)
def test_heard_text_ends_at_a_word(text: str, share: float, language: str, expected: str) -> None:
    assert said(text, share, language) == expected


def test_word_timings_are_preferred_to_the_share() -> None:
    text = "One two three"
    words = [(0.0, 100.0, 0, 3), (100.0, 200.0, 4, 7), (900.0, 1000.0, 8, 13)]
    spoken = normalize(text, "en")
    assert heard(text, spoken, 850, 1000, words).text == "One two"
    assert heard(text, spoken, 150, 1000, words).text == "One"
    assert heard(text, spoken, 50, 1000, words).text == ""


def test_word_timings_of_han_words_end_at_a_character() -> None:
    text = "我们出发吧"
    words = [(0.0, 400.0, 0, 4), (400.0, 500.0, 4, 5)]
    assert heard(text, normalize(text, "zh"), 210, 500, words).text == "我们"


def test_timings_lead_back_to_written_numbers() -> None:
    text = "Pay $5 now"  # said: Pay five dollars now
    words = [(0.0, 100.0, 0, 3), (100.0, 200.0, 4, 8), (200.0, 300.0, 9, 16), (300.0, 400.0, 17, 20)]
    spoken = normalize(text, "en")
    assert heard(text, spoken, 250, 400, words).text == "Pay"
    assert heard(text, spoken, 300, 400, words).text == "Pay $5"


def test_segment_without_sound_was_not_heard() -> None:
    assert heard("Hi.", normalize("Hi.", "en"), 100, 0).text == ""
    assert heard("...", normalize("...", "en"), 50, 100).text == ""


_TEXTS = st.text(alphabet="ab 1.,$5%你好，。“”*()'’-—\n😊", max_size=30)


@given(text=_TEXTS, times=st.lists(st.floats(-10, 1100), min_size=2, max_size=6), language=st.sampled_from(["en", "zh"]))
def test_heard_text_is_a_prefix_that_only_grows(text: str, times: list[float], language: str) -> None:
    spoken = normalize(text, language)
    ends = []
    for time in sorted(times):
        result = heard(text, spoken, time, 1000)
        assert result.text == text[: result.end]
        ends.append(result.end)
    assert ends == sorted(ends)


@given(text=_TEXTS, share=st.floats(0, 0.999))
def test_heard_text_never_cuts_a_latin_word(text: str, share: float) -> None:
    end = heard(text, normalize(text, "en"), share * 1000, 1000).end
    assert not (0 < end < len(text) and text[end - 1] in "ab1" and text[end] in "ab1")
