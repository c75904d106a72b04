"""The segmenter under any split into deltas, and under text that was never meant to be read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.speech.segmenter import DEFAULT, Segment, Segmenter, SegmentOptions, for_language, for_language_early
from tests.unit.test_segmenter import load_cases

LANGUAGES = ("en", "zh", "ja", "ko", "de", "fr", "el", "hy", "ru", "xx")
_WORD_TABLE = """
Dr. Mr U.S. p.m. e.g. No. 3 3.14 1,000 J. K. a.b x.com www.a.b https://a.b/c.d?e=f me@x.org v1.2 Hello there the The He said said: and
你好 他说： 所以 今天是 3：30 は です と 안녕 z. B. т. д. 15. Oktober Step Jan. etc. Inc. Ph.D. I A. :( 10x10 ... …… 。。 ?! 1. 2、 （1） ①
- * > # |
"""
_WORDS = st.sampled_from(_WORD_TABLE.split())
_MARKS = st.sampled_from(
    [*"。！？.!?…,，;；:：、—'\"“”‘’«»„「」『』《》（）()[]{}【】 \n\t\u00a0*_~`<>|#@/%&-+", "\r\n", "\u2028", "\u3000"]
)
_ODD = st.sampled_from(
    [
        "\ud83d",
        "\ude00",
        "\ud800",
        "\udfff",
        "\0",
        "\u200d",
        "👩‍👩‍👧",
        "👍🏽",
        "e\u0301",
        "\ufe0f",
        "🇩🇪",
        "☀️",
        "\u202e",
        "שלום",
        "سلام؟",
        "𠀀",
        "\ufeff",
    ]
)
_TEXT = st.lists(_WORDS | _WORDS | _MARKS | _MARKS | st.just(" ") | _ODD | st.text(max_size=3), max_size=60).map("".join)
_OPTIONS = st.sampled_from(
    [
        DEFAULT,
        SegmentOptions(early_first=False),
        SegmentOptions(soft_chars=40, hard_chars=60),
        SegmentOptions(first_chars=20, soft_chars=50, hard_chars=90),
    ]
)


def split(text: str, places: list[int]) -> list[str]:
    cuts = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def run(pieces: list[str], language: str, options: SegmentOptions) -> list[Segment]:
    segmenter = Segmenter(language, options)
    return [segment for piece in pieces for segment in segmenter.feed(piece)] + segmenter.flush()


@settings(max_examples=400, deadline=None)
@given(_TEXT, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from(LANGUAGES), _OPTIONS)
def test_segments_do_not_depend_on_the_split(text: str, places: list[int], language: str, options: SegmentOptions) -> None:
    whole = run([text], language, options)
    assert run(list(text), language, options) == whole
    assert run(split(text, places), language, options) == whole
    assert "".join(segment.text for segment in whole) == text


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(load_cases()).map(lambda case: case[1].replace("¦", "")), max_size=6).map(" ".join),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_real_text_is_cut_alike_however_it_is_split(text: str, places: list[int]) -> None:
    for language in ("en", "zh", "de"):
        whole = run([text], language, DEFAULT)
        assert run(list(text), language, DEFAULT) == whole
        assert run(split(text, places), language, DEFAULT) == whole


@settings(max_examples=200, deadline=None)
@given(_TEXT, st.lists(st.integers(0, 10_000), max_size=12), st.sampled_from(LANGUAGES))
def test_raw_text_comes_back_whole_and_alike(text: str, places: list[int], language: str) -> None:
    for factory in (for_language, for_language_early):
        results = []
        for pieces in ([text], list(text), split(text, places)):
            splitter = factory(language)
            results.append([part for piece in pieces for part in splitter.feed(piece)] + splitter.flush())
        assert results[0] == results[1] == results[2]
        assert "".join(results[0]) == text


@settings(max_examples=200, deadline=None)
@given(_TEXT, st.lists(st.booleans(), min_size=1, max_size=20), st.sampled_from(LANGUAGES))
def test_timer_commits_lose_nothing(text: str, commits: list[bool], language: str) -> None:
    segmenter = Segmenter(language)
    out: list[Segment] = []
    for index, char in enumerate(text):
        out += segmenter.feed(char)
        if commits[index % len(commits)]:
            pending = segmenter.pending()
            made = segmenter.commit_pending()
            assert bool(made) <= (pending == "likely")
            out += made
    out += segmenter.flush()
    assert "".join(segment.text for segment in out) == text
    assert [segment.start for segment in out[1:]] == [segment.end for segment in out[:-1]]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(_TEXT, st.booleans()), max_size=5), st.sampled_from(LANGUAGES), _OPTIONS)
def test_atoms_stay_whole(pieces: list[tuple[str, bool]], language: str, options: SegmentOptions) -> None:
    segmenter = Segmenter(language, options)
    out: list[Segment] = []
    spans: list[tuple[int, int]] = []
    at = 0
    for text, atomic in pieces:
        out += segmenter.feed(text, atomic)
        if atomic and len(text) < options.hard_chars // 2:
            spans.append((at, at + len(text)))
        at += len(text)
    out += segmenter.flush()
    assert "".join(segment.text for segment in out) == "".join(text for text, _ in pieces)
    hard = {segment.end for segment in out if segment.cut == "length"}
    assert not [span for span in spans for segment in out if span[0] < segment.end < span[1] and segment.end not in hard]


@pytest.mark.parametrize(
    "text",
    [
        "a" * 100_000,
        "<" * 10_000,
        "." * 20_000,
        "。" * 20_000,
        "!?" * 10_000,
        "\n" * 20_000,
        " " * 20_000,
        "(" * 10_000,
        "“" * 10_000 + "好。" * 5_000,
        "'" * 10_000,
        '"' * 10_001,
        "*" * 20_000,
        "```\n" + "x = 1.\n" * 5_000,
        "<think>" + "never closed. " * 2_000,
        "😀" * 10_000,
        "👩‍👩‍👧" * 3_000,
        "漢" * 20_000,
        "1." * 10_000,
        "\ud83d" * 5_000,
        "\0" * 5_000,
        "שלום. " * 3_000,
        "a, " * 10_000,
    ],
    ids=lambda text: repr(text[:4]),
)
@pytest.mark.timeout(60)
def test_no_text_stalls_or_is_lost(text: str) -> None:
    for one_by_one in (False, True):
        splitter = for_language("en")
        parts = [part for piece in (text if one_by_one else [text]) for part in splitter.feed(piece)]
        parts += splitter.flush()
        assert "".join(parts) == text
        segments = run(list(text) if one_by_one else [text], "zh", DEFAULT)
        assert "".join(segment.text for segment in segments) == text
        assert max(len(segment.text) for segment in segments) <= 1024 + DEFAULT.hard_chars


def test_a_length_cut_parts_no_cluster() -> None:
    for unit in ("👩‍👩‍👧", "👍🏽", "☀️", "\ud83d\ude00"):
        segments = run([unit * 1_000], "en", DEFAULT)
        assert len(segments) > 1
        for segment in segments[:-1]:
            assert not segment.text.endswith(("\u200d", "\ud83d"))
        for segment in segments[1:]:
            assert not segment.text.startswith(("\u200d", "\ufe0f", "🏽", "\ude00"))
