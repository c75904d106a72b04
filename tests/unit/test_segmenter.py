"""Where sentences end, by table; what the segmenter says of each cut."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from gateway.speech.segmenter import Segment, Segmenter, SegmentOptions, for_language

CASES = Path(__file__).with_name("data") / "segments.txt"
WHOLE = SegmentOptions(early_first=False)


def load_cases() -> list[tuple[str, str]]:
    lines = [line for line in CASES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return [(language, text.replace("\\n", "\n")) for language, _, text in (line.partition("\t") for line in lines)]


def said(text: str) -> str:
    """What a boundary is compared by: letters, digits and signs, so that spaces, emoji and closers may fall on either side."""
    return "".join(char for char in text if char.isalnum() or unicodedata.category(char) in ("Sc", "Sm", "Mn", "Mc") or char in "%@&°")


def spoken_parts(parts: list[str]) -> list[str]:
    return [said(part) for part in parts if said(part)]


@pytest.mark.parametrize(("language", "marked"), load_cases())
def test_sentences_end_where_a_reader_ends_them(language: str, marked: str) -> None:
    splitter = for_language(language)
    parts = [part for char in marked.replace("¦", "") for part in splitter.feed(char)] + splitter.flush()
    assert spoken_parts(parts) == spoken_parts(marked.split("¦"))
    assert "".join(parts) == marked.replace("¦", "")


def test_the_table_is_read() -> None:
    assert len(load_cases()) > 200


def run(text: str, language: str = "en", options: SegmentOptions = WHOLE) -> list[Segment]:
    segmenter = Segmenter(language, options)
    return [segment for char in text for segment in segmenter.feed(char)] + segmenter.flush()


def test_a_han_stop_is_decided_by_itself() -> None:
    segmenter = Segmenter("zh", WHOLE)
    assert [segment.text for segment in segmenter.feed("好的。")] == ["好的。"]


def test_an_introduced_quotation_ends_at_its_closer() -> None:
    segmenter = Segmenter("zh", WHOLE)
    assert [segment.text for segment in segmenter.feed("他说：“好的。”")] == ["他说：“好的。”"]


def test_a_full_stop_after_a_plain_word_waits_for_one_character() -> None:
    segmenter = Segmenter("en", WHOLE)
    assert segmenter.feed("All done.") == []
    assert [segment.text for segment in segmenter.feed(" ")] == ["All done. "]


def test_a_newline_ends_a_segment_at_once() -> None:
    assert [segment.text for segment in Segmenter("en", WHOLE).feed("One line\n")] == ["One line\n"]


@pytest.mark.parametrize(
    ("text", "cuts", "ends"),
    [
        ("Yes. No.", ["stop", "end"], ["stop", "stop"]),
        ("A heading\nText", ["newline", "end"], ["newline", "none"]),
        ("Done.\nNext", ["newline", "end"], ["stop", "none"]),
        ("好。走吧", ["stop", "end"], ["stop", "none"]),
        ('He said "no." Then he left,', ["stop", "end"], ["stop", "clause"]),
    ],
)
def test_a_segment_says_why_it_was_cut_and_how_it_ends(text: str, cuts: list[str], ends: list[str]) -> None:
    segments = run(text)
    assert [segment.cut for segment in segments] == cuts
    assert [segment.ends for segment in segments] == ends


def test_offsets_count_the_whole_text() -> None:
    text = "One. Two! 三。Four"
    segments = run(text)
    assert [text[segment.start : segment.end] for segment in segments] == [segment.text for segment in segments]
    assert segments[-1].end == len(text)


@pytest.mark.parametrize(
    ("language", "text", "languages"),
    [
        ("zh", "这是中文。This is English. 再见。", ["zh", "en", "zh"]),
        ("en", "Say hello. 你好吗？", ["en", "zh"]),
        ("en", "Say it. こんにちは。", ["en", "ja"]),
        ("en", "Say it. 안녕하세요.", ["en", "ko"]),
        ("zh-TW", "好。", ["zh-TW"]),
        ("fr", "Bonjour. Ça va ?", ["fr", "fr"]),
    ],
)
def test_a_segment_knows_its_language(language: str, text: str, languages: list[str]) -> None:
    assert [segment.language for segment in run(text, language)] == languages


def test_marks_without_speech_lead_the_next_segment() -> None:
    assert [segment.text for segment in run("太好了！！！走吧。", "zh")] == ["太好了！", "！！走吧。"]


def test_an_unclosed_quote_is_forgotten_at_a_newline() -> None:
    assert [segment.text for segment in run('He said "well. And\nthen. Bye.')] == ['He said "well. And\n', "then. ", "Bye."]


def test_an_unclosed_quote_does_not_hold_the_reply_back() -> None:
    segments = run('He said "well. ' + "This goes on and on without a closer. " * 30)
    assert max(len(segment.text) for segment in segments) <= 600
    assert len(segments) > 10


def test_a_smiley_opens_no_bracket() -> None:
    assert [segment.text for segment in run("Sorry :( It broke. Try again.")] == ["Sorry :( It broke. ", "Try again."]


def test_atomic_text_is_never_cut_inside() -> None:
    segmenter = Segmenter("en", WHOLE)
    segments = segmenter.feed("Run ") + segmenter.feed("a. B! c\nd", atomic=True) + segmenter.feed(" now. Then stop.") + segmenter.flush()
    assert [segment.text for segment in segments] == ["Run a. B! c\nd now. ", "Then stop."]


def test_the_segmenter_goes_on_after_a_flush() -> None:
    segmenter = Segmenter("en", WHOLE)
    first = segmenter.feed("Let me look") + segmenter.flush()
    second = segmenter.feed("Found it. Good.") + segmenter.flush()
    assert [segment.text for segment in first + second] == ["Let me look", "Found it. ", "Good."]
    assert second[0].start == first[0].end


def test_an_unknown_language_is_read_like_english() -> None:
    assert [segment.text for segment in run("Mr. Xy ok. Yes.", "xx")] == ["Mr. Xy ok. ", "Yes."]


@pytest.mark.parametrize(
    ("language", "text", "least", "most"),
    [
        (
            "en",
            "Far down there in the deep cold water of the sea they have lived for thousands of years without a single ray of light",
            30,
            60,
        ),
        ("zh", "深海里的动物在没有一丝阳光的寒冷水域中已经生活了几千年的时间而且从来没有见过其他的生物", 12, 25),
        ("ko", "그런 점에서 깊은 바다의 동물들은 햇빛이 전혀 없는 차가운 물속에서 수천 년 동안 살아왔다는 것을 알 수 있습니다", 12, 32),
    ],
)
def test_a_first_segment_without_a_mark_takes_the_same_time_to_say_in_any_script(language: str, text: str, least: int, most: int) -> None:
    first = run(text, language, SegmentOptions())[0]
    assert first.cut == "length"
    assert least <= len(first.text) <= most
