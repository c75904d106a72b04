"""Written text to spoken text: hand-checked pairs, and rules that hold for any text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.speech.normalizer import VOICE_READS, AtomSpan, normalize

_DATA = Path(__file__).parent / "data"


def _pairs(language: str) -> list[tuple[str, str, str]]:
    rows = (_DATA / f"normalization_{language}.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return [(kind, written, spoken) for kind, written, spoken in (row.split("\t") for row in rows)]


@pytest.mark.parametrize(("kind", "written", "spoken"), _pairs("en"))
def test_english_is_said_as_the_table_says(kind: str, written: str, spoken: str) -> None:
    assert normalize(written, "en").text == spoken


@pytest.mark.parametrize(("kind", "written", "spoken"), _pairs("zh"))
def test_chinese_is_said_as_the_table_says(kind: str, written: str, spoken: str) -> None:
    assert normalize(written, "zh-CN").text == spoken


@pytest.mark.parametrize("language", ["en", "zh"])
def test_tables_hold_two_hundred_pairs_and_no_pair_twice(language: str) -> None:
    written = [row[1] for row in _pairs(language)]
    assert len(written) >= 200
    assert len(set(written)) == len(written)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("**Hallo!!!** 😊 Das kostet 3,50 € – _wirklich_??", "Hallo! Das kostet 3,50 € – wirklich?"),
        ("## Título\n", "Título"),
        ("- uno", "uno"),
        ("それは3.14です……", "それは3.14です…"),
    ],
)
def test_other_languages_are_only_cleaned(written: str, spoken: str) -> None:
    assert normalize(written, "de").text == spoken


@pytest.mark.parametrize(
    "text", ["", " ", "...", "😊", "?!", "**", "——", "\n\n", "```", "|---|", "“”", "\u200d\ufe0f", "\ud83d", "\x00", "¿", "👨‍👩‍👧"]
)
@pytest.mark.parametrize("language", ["en", "zh", "fr"])
def test_nothing_is_said_without_a_letter_or_digit(text: str, language: str) -> None:
    spoken = normalize(text, language)
    assert spoken.text == ""
    assert (spoken.written_offset(0), spoken.spoken_offset(len(text))) == (0, 0)


@pytest.mark.parametrize(
    ("written", "spoken"), [("！！ 那好。", "那好。"), ("?! So what", "So what"), ("” he said", "he said"), (", then", "then")]
)
def test_marks_carried_over_from_the_segment_before_are_dropped(written: str, spoken: str) -> None:
    assert normalize(written, "zh").text == spoken


def test_atoms_are_said_as_they_tell() -> None:
    text = "See [the 2 docs](http://a.b/c) and `x=1` or <b>this."
    atoms = [AtomSpan(4, 30, "the 2 docs"), AtomSpan(35, 40, None), AtomSpan(44, 47, "")]
    assert normalize(text, "en", atoms=atoms).text == "See the two docs and x equals one or this."


def test_overlapping_or_outlying_atoms_are_refused() -> None:
    with pytest.raises(ValueError, match="expected to lie in"):
        normalize("abc", "en", atoms=[AtomSpan(0, 2, ""), AtomSpan(1, 3, "")])
    with pytest.raises(ValueError, match="expected to lie in"):
        normalize("abc", "en", atoms=[AtomSpan(1, 4, "")])


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("abbreviations", "Dr. Lee"),
        ("addresses", "a@example.com"),
        ("codes", "No. 5"),
        ("dates", "2024-03-15"),
        ("fractions", "1/2 cup"),
        ("math", "a ≤ b"),
        ("money", "$29.50"),
        ("numbers", "five or 12"),
        ("ordinals", "the 2nd"),
        ("percents", "45%"),
        ("phones", "555-123-4567"),
        ("ranges", "5-10"),
        ("ratios", "16:9"),
        ("times", "3:30"),
        ("units", "5 km"),
        ("years", "in 1984"),
    ],
)
def test_what_the_voice_reads_stays_as_written(kind: str, written: str) -> None:
    assert normalize(written, "en").text != written
    assert normalize(written, "en", voice_reads=frozenset((kind,))).text == written


def test_every_kind_that_a_voice_may_read_is_tested() -> None:
    marks = [mark for mark in test_what_the_voice_reads_stays_as_written.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]  # pytest adds it
    assert {kind for kind, _ in marks[0].args[1]} == VOICE_READS


def test_unknown_voice_reads_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a subset of .*'money'"):
        normalize("a", "en", voice_reads=frozenset(("cash",)))


def test_span_map_leads_through_replaced_and_dropped_text() -> None:
    text = "**It** is $29 now."
    spoken = normalize(text, "en")
    assert spoken.text == "It is twenty-nine dollars now."
    assert text[: spoken.written_offset(2)].endswith("It**")
    assert spoken.written_offset(10) == text.index("$")
    assert spoken.written_offset(spoken.text.index(" now")) == text.index(" now")
    assert spoken.spoken_offset(text.index(" now")) == spoken.text.index(" now")
    assert spoken.written_offset(len(spoken.text)) == len(text)


_PARTS = st.sampled_from(
    [
        "1",
        "2",
        "12",
        "007",
        "1,000",
        "3.14",
        "2024",
        "1984",
        "$",
        "€",
        "¥",
        "%",
        "％",
        "-",
        "–",
        "~",
        "/",
        ":",
        "：",
        "x",
        "×",
        "*",
        "=",
        "+",
        "^",
        "²",
        "½",
        "√",
        " ",
        "\n",
        "km",
        "m",
        "°C",
        "℃",
        "am",
        "p.m.",
        "No.",
        "#",
        "Dr.",
        "St. ",
        "etc.",
        "March ",
        "the ",
        "in ",
        "th",
        "s",
        "K",
        "v",
        "@",
        "a.com",
        "http://a.b",
        "年",
        "月",
        "日",
        "点",
        "分",
        "个",
        "第",
        "万",
        "亿",
        "元",
        "到",
        "好",
        "。",
        "，",
        "！",
        "？",
        "…",
        "!",
        "?",
        ".",
        "😊",
        "\u200d",
        "\ud83d",
        "\x00",
        "_",
        "`",
        "|",
        "[",
        "]",
        "٣",
        "５",
        "①",
        "İ",
        "ß",
        "שלום",
        "5'10\"",
        "1:02:03",
        "24/7",
        "'80s",
        "10-20%",
        "13812345678",
    ]
)
_TEXTS = st.lists(_PARTS | st.text(max_size=3), max_size=12).map("".join)


@given(text=_TEXTS, language=st.sampled_from(["en", "zh", "de"]), reads=st.sets(st.sampled_from(sorted(VOICE_READS)), max_size=4))
@example(text="9" * 5000 + "k", language="zh", reads=set())
@example(text="9" * 5000 + "th", language="en", reads=set())
def test_span_map_never_goes_backward_and_covers_both_texts(text: str, language: str, reads: set[str]) -> None:
    spoken = normalize(text, language, voice_reads=frozenset(reads))
    written = [spoken.written_offset(offset) for offset in range(len(spoken.text) + 1)]
    said = [spoken.spoken_offset(offset) for offset in range(len(text) + 1)]
    assert written == sorted(written)
    assert said == sorted(said)
    if spoken.text:
        assert (written[0], written[-1], said[0], said[-1]) == (0, len(text), 0, len(spoken.text))
        assert all(spoken.written_offset(said[offset]) >= offset for offset in range(len(text) + 1))
        assert all(spoken.spoken_offset(written[offset]) <= offset for offset in range(len(spoken.text) + 1))


@given(text=_TEXTS, language=st.sampled_from(["en", "zh", "de"]))
def test_spoken_text_is_empty_or_speakable_and_tidy(text: str, language: str) -> None:
    spoken = normalize(text, language).text
    assert spoken == spoken.strip()
    assert spoken == "" or any(ch.isalnum() for ch in spoken)
    assert not set("😊\u200d\ud83d\x00`\n") & set(spoken)


@pytest.mark.parametrize(
    "text",
    [
        " " * 30_000,
        "a" * 100_000,
        "1" * 100_000,
        "-a" * 10_000,
        "a." * 10_000,
        "\n1. " * 5_000,
        "in 2024 " * 3_000,
        "$5 " * 5_000,
        "! " * 5_000,
        "1," * 10_000,
        "@a" * 10_000,
        "😊 " * 5_000,
        "(1" * 5_000,
        "1:1 " * 5_000,
    ],
)
@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_text_is_said_without_a_stall(text: str, language: str) -> None:
    assert len(normalize(text, language).text) >= 0
