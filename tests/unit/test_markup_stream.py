"""Markup under any split into deltas, and under text that was never meant to be read."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.speech.markup import DEFAULT, Emotion, MarkupReader, MarkupRules, Piece, emotion_instructions

_PARTS = st.sampled_from(
    [
        "<think>",
        "</think>",
        "<",
        ">",
        "[happy]",
        "[",
        "]",
        "(",
        ")",
        "(laughs)",
        "*sighs*",
        "*",
        "**",
        "_",
        "`",
        "```",
        "```\n",
        "~~~\n",
        "\n",
        " ",
        ". ",
        '<emotion value="sad">',
        "</emotion>",
        "<emotion value='",
        "😊",
        "😢 ",
        "\u200d",
        "️",
        "http",
        "https://a.b/c",
        "www.",
        "www.a",
        "[a](b.c)",
        "![",
        "](",
        "|---|",
        "| a |",
        "---",
        "（轻笑）",
        "（",
        "轻笑",
        "）",
        "好",
        "。",
        "word",
        "Laughs",
        "a",
        "h",
        "w",
        "!",
        "<|im_end|>",
        "<|",
        "[^1]",
        "\ud83d",
        "\x00",
        "İ",
        "ſ",
    ]
)
_TEXTS = st.lists(_PARTS | st.text(max_size=4), max_size=14).map("".join)
_RULES = [
    DEFAULT,
    MarkupRules(patterns=("【{}】", "({})", "*{}*"), starts_in_reasoning=True),
    MarkupRules(patterns=(), emoji="off", stage_directions=False, code_notice="code"),
]


def joined(pieces: list[Piece]) -> list[Piece]:
    out: list[Piece] = []
    for piece in pieces:
        if out and piece.kind in ("text", "hidden") and out[-1].kind == piece.kind:
            last = out.pop()
            piece = Piece(piece.kind, last.text + piece.text, last.raw_start, piece.raw_end)
        out.append(piece)
    return out


def read(deltas: list[str], rules: MarkupRules) -> list[Piece]:
    reader = MarkupReader(rules)
    return joined([piece for delta in deltas for piece in reader.feed(delta)] + reader.flush())


@given(text=_TEXTS, cuts=st.lists(st.integers(0, 80), max_size=12), rules=st.sampled_from(_RULES))
def test_pieces_do_not_depend_on_how_the_text_is_split(text: str, cuts: list[int], rules: MarkupRules) -> None:
    whole = read([text], rules)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    assert read([text[a:b] for a, b in pairwise(places)], rules) == whole
    assert read(list(text), rules) == whole


@given(text=_TEXTS, rules=st.sampled_from(_RULES))
def test_pieces_tile_the_raw_text_and_keep_it(text: str, rules: MarkupRules) -> None:
    at = 0
    for piece in read([text], rules):
        assert piece.raw_start == at
        at = piece.raw_end
        if piece.kind in ("text", "atom"):
            assert piece.text == text[piece.raw_start : piece.raw_end] != ""
        else:
            assert piece.text == ""
        assert (piece.raw_end == piece.raw_start) == (piece.kind == "break")
        assert (piece.emotion is not None) == (piece.kind == "emotion")
    assert at == len(text)


_HOSTILE = {
    "many openers": "<" * 10_000,
    "one letter": "a" * 100_000,
    "brackets": "[" * 10_000,
    "labels": "[a](" * 3_000,
    "half labels": "[aaaa " * 3_000,
    "backticks": "`" * 10_000,
    "half code": "`a" * 5_000,
    "stars": "*" * 10_000,
    "half stars": "*a " * 5_000,
    "parentheses": "(" * 10_000,
    "open reasoning": "<think>" + "x" * 100_000,
    "open fence": "```\n" + "x" * 100_000,
    "open tag": "<emotion value='" + "x" * 10_000,
    "open link": "[a](http://" + "x" * 10_000,
    "long address": "https://" + "a" * 100_000,
    "only emoji": "😊" * 10_000,
    "only stops": "!?." * 5_000,
    "spaces": " " * 50_000,
    "rules": "|-" * 5_000,
    "nul": "\x00" * 5_000,
    "surrogates": "\ud83d" * 5_000,
    "right to left": "שלום [שמח] مرحبا (يضحك) " * 400,
}


@pytest.mark.parametrize("text", _HOSTILE.values(), ids=_HOSTILE.keys())
def test_hostile_text_is_neither_lost_nor_held_without_bound(text: str) -> None:
    reader = MarkupReader()
    read_to, held = 0, 0
    for start, ch in enumerate(text):
        for piece in reader.feed(ch):
            read_to = piece.raw_end
        held = max(held, start + 1 - read_to)
    pieces = reader.flush()
    assert (pieces[-1].raw_end if pieces else read_to) == len(text)
    assert held <= 1500


@pytest.mark.parametrize("language", ["en", "zh", "zh-CN", "de"])
@pytest.mark.parametrize(
    "rules",
    [
        DEFAULT,
        MarkupRules(patterns=("【{}】",)),
        MarkupRules(patterns=("({})", "[{}]")),
        MarkupRules(patterns=()),
        MarkupRules(words={"耍赖": Emotion.PLAYFUL, "grumpy": Emotion.ANGRY}),
    ],
)
def test_prompt_asks_only_for_marks_that_are_understood(rules: MarkupRules, language: str) -> None:
    text = emotion_instructions(rules, language)
    asked = [piece.emotion for piece in read([text], rules) if piece.kind == "emotion"]
    listed = set(rules.words.values())
    assert set(asked) == listed
    assert len(asked) == len(listed) + 1  # the list and the example
    opener = rules.patterns[0][0] if rules.patterns else "<"
    assert text.count(opener) == len(asked)


def test_prompt_is_empty_where_no_word_is_known() -> None:
    assert emotion_instructions(MarkupRules(words={}), "en") == ""
