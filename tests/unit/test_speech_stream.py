"""Raw deltas to captions and spoken segments: nothing lost, the way back kept, the same however split."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.speech.emotion import Emotion
from gateway.speech.segmenter import SegmentOptions
from gateway.speech.stream import SILENT_LIMIT, Output, SpeechStream, SpokenSegment

WHOLE = SegmentOptions(early_first=False)


def read(pieces: list[str] | str, language: str = "en", options: SegmentOptions = WHOLE) -> tuple[str, list[SpokenSegment]]:
    stream = SpeechStream(language=language, options=options)
    outputs = [*(stream.feed(piece) for piece in pieces), stream.flush()]
    return "".join(output.caption for output in outputs), [segment for output in outputs for segment in output.segments]


def test_reasoning_and_marks_are_neither_caption_nor_speech() -> None:
    caption, segments = read("<think>Hm. Easy.</think>[happy] It's three. [sad]Too late.")
    assert caption == " It's three. Too late."
    assert [(segment.text, segment.emotion) for segment in segments] == [(" It's three. ", Emotion.HAPPY), ("Too late.", Emotion.SAD)]


def test_raw_ranges_tile_the_raw_text() -> None:
    raw = "<think>x</think>One. [happy]Two! <think>y</think>Three.[sad]"
    _, segments = read(raw)
    assert segments[0].raw_start == 0
    assert segments[-1].raw_end == len(raw)  # with the mark behind it
    assert [segment.raw_start for segment in segments[1:]] == [segment.raw_end for segment in segments[:-1]]


def test_an_offset_leads_back_to_the_raw_text() -> None:
    raw = "[happy]Hello [sad]there, <emotion value='calm'>friend."
    _, [segment] = read([raw])
    at = segment.text.index("friend") + len("friend")
    assert raw[: segment.raw_offset(at)].endswith("friend")
    assert segment.raw_offset(0) == 0
    assert segment.raw_offset(len(segment.text)) == len(raw)


def test_text_that_says_nothing_leads_the_next_segment() -> None:
    _, segments = read("Try this:\n```\nls -la\n```\nIt lists files.")
    assert [segment.text for segment in segments] == ["Try this:\n", "```\nls -la\n```\nIt lists files."]
    assert segments[1].spoken.text.strip() == "It lists files."


def test_a_reply_with_nothing_to_say_is_one_silent_segment() -> None:
    caption, segments = read("🎉🎉")
    assert caption == "🎉🎉"
    assert [(segment.text, segment.spoken.text) for segment in segments] == [("🎉🎉", "")]


def test_a_long_silence_is_not_held_for_ever() -> None:
    _, segments = read(["```\n" + "x = 1\n" * 2_000])
    assert len(segments) > 1
    assert max(len(segment.text) for segment in segments) < SILENT_LIMIT + 700


def test_a_tool_call_ends_the_segment() -> None:
    stream = SpeechStream(language="en", options=WHOLE)
    stream.feed("Let me look")
    first = stream.flush()
    stream.feed("Found it.")
    second = stream.flush()
    assert [segment.text for segment in first.segments + second.segments] == ["Let me look", "Found it."]
    assert [segment.index for segment in first.segments + second.segments] == [0, 1]


def test_a_likely_end_can_be_committed() -> None:
    stream = SpeechStream(language="en", options=WHOLE)
    stream.feed("All right.")
    assert stream.pending() == "likely"
    [segment] = stream.commit_pending().segments
    assert (segment.text, segment.cut, segment.ends) == ("All right.", "timer", "stop")
    assert stream.pending() == "none"


def test_a_number_is_never_committed() -> None:
    stream = SpeechStream(language="en", options=WHOLE)
    stream.feed("Pi is 3.")
    assert stream.pending() == "unlikely"
    assert stream.commit_pending() == Output()
    [segment] = [*stream.feed("14").segments, *stream.flush().segments]
    assert segment.text == "Pi is 3.14"


@pytest.mark.parametrize(
    ("language", "text", "first"),
    [
        ("en", "Well, I think that's a good idea, so let's do it.", "Well, I think that's a good idea,"),
        ("en", "Sure, why not? Go on.", "Sure, why not? "),
        ("en", "It costs about 1,000 dollars, which is a lot.", "It costs about 1,000 dollars,"),
        ("en", "He was born on Jan. 3, 1990, in Leeds.", "He was born on Jan. 3, 1990,"),
        ("en", "Use **this one, please, it's better** now, thanks.", "Use **this one, please, it's better** now,"),
        ("zh", "这个问题很有意思，我们来看看。", "这个问题很有意思，"),
        ("zh", "好的，我们来看看。", "好的，我们来看看。"),
        ("zh", "他说“这个真的不错，我喜欢”，然后走了。", "他说“这个真的不错，我喜欢”，"),
    ],
)
def test_the_first_segment_may_end_at_a_clause(language: str, text: str, first: str) -> None:
    _, segments = read(text, language, SegmentOptions())
    assert segments[0].text == first


def test_a_long_first_segment_is_cut_before_a_conjunction() -> None:
    _, segments = read(
        "The quick brown fox jumps over the lazy dog and it runs away into the forest without a sound", options=SegmentOptions()
    )
    assert segments[0].text == "The quick brown fox jumps over the lazy dog "
    assert segments[0].cut == "length"


def test_a_long_sentence_is_cut_at_its_best_mark() -> None:
    text = "This is a clause that goes on for a while, " * 8 + "and ends."
    _, segments = read(text)
    assert [segment.cut for segment in segments] == ["length", "end"]
    assert segments[0].text.endswith(",")
    assert len(segments[0].text) <= 280


def test_what_was_heard_is_written_text() -> None:
    _, [segment] = read("It costs $20 today.")
    assert segment.heard(0, 1000).text == ""
    assert segment.heard(1000, 1000).text == segment.text
    half = segment.heard(500, 1000)
    assert segment.text.startswith(half.text)
    assert 0 < half.end < len(segment.text)


_PART_TABLE = """
<think> </think> [happy] [sad] ``` ` ~ * ** [ ] ( ) (laughs) https://a.b/c?d=e. me@x.org Hello. Dr. 3.14 你好。 他说：“好。” 😀 😢 <b> </b>
<emotion | |---| - 1. # > ... …… ！！ p.m. The and
"""
_PARTS = st.sampled_from([*_PART_TABLE.split(), "\ud83d", "\0", "\n", "\n```py\n", "\n```\n", " ", "  ", "[docs](https://a.b/c)"])
_RAW = st.lists(_PARTS | st.text(max_size=4), max_size=40).map("".join)


@settings(max_examples=250, deadline=None)
@given(_RAW, st.lists(st.integers(0, 10_000), max_size=10), st.sampled_from(["en", "zh"]))
def test_nothing_is_lost_and_no_split_matters(raw: str, places: list[int], language: str) -> None:
    cuts = sorted({place % (len(raw) + 1) for place in places})
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    results = [read(split, language, SegmentOptions()) for split in ([raw], list(raw), pieces)]
    for caption, segments in results:
        assert caption == "".join(segment.text for segment in segments)
        assert [segment.index for segment in segments] == list(range(len(segments)))
        assert all(segment.spoken.text for segment in segments[:-1] if len(segment.text) <= SILENT_LIMIT)
        at = 0
        for segment in segments:
            assert segment.raw_start == at
            at = segment.raw_end
            for offset in range(1, len(segment.text)):
                assert raw[segment.raw_offset(offset) - 1] == segment.text[offset - 1]
        assert at <= len(raw)

    def shown(segments: list[SpokenSegment]) -> list[tuple[object, ...]]:
        return [(s.text, s.spoken.text, s.raw_start, s.raw_end, s.emotion, s.cut, s.ends, s.language) for s in segments]

    assert shown(results[0][1]) == shown(results[1][1]) == shown(results[2][1])
