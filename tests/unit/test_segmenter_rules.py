"""The tables of each language, and what stands before a full stop."""

from __future__ import annotations

from importlib.resources import files

import pytest

from gateway.speech.segmenter.kinds import Kind
from gateway.speech.segmenter.rules import SECTIONS, parse, rules_for
from gateway.speech.segmenter.token import kind_of
from gateway.speech.segmenter.view import View

LANGUAGES = sorted(
    entry.name.removesuffix(".txt") for entry in files("gateway.speech.segmenter").joinpath("data").iterdir() if entry.name.endswith(".txt")
)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_word_of_a_table_can_match(language: str) -> None:
    source = files("gateway.speech.segmenter").joinpath("data").joinpath(f"{language}.txt").read_text(encoding="utf-8")
    tables = parse(source)
    assert set(tables) <= SECTIONS
    for words in tables.values():
        assert not [word for word in words if word.endswith((".", ":", ","))]


def test_the_tables_reach_the_languages_promised() -> None:
    promised = "am ar bg da de el en es fi fr he hi hy id it kk ml mr nl pa pl pt ru sk sv tr uk vi".split()  # noqa: SIM905  # a table
    assert set(promised) <= set(LANGUAGES)


def test_an_unknown_section_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2: unknown section 'nevr'"):
        parse("# words\n[nevr]\nmr")


def test_the_own_table_counts_before_the_english_one() -> None:
    assert rules_for("en").kinds["etc"] is Kind.FINAL
    assert rules_for("de-AT").kinds["usw"] is Kind.FINAL
    assert rules_for("de").kinds["mio"] is Kind.MAYBE
    assert rules_for("xx").kinds.items() <= rules_for("en").kinds.items()


@pytest.mark.parametrize(
    ("language", "text", "kind"),
    [
        ("en", "Ask Dr", Kind.NEVER),
        ("en", "pens, etc", Kind.FINAL),
        ("en", "at 5 p.m", Kind.FINAL),
        ("en", "at 5 p. m", Kind.FINAL),
        ("en", "in the U.S", Kind.MAYBE),
        ("en", "in the U.X.Y", Kind.MAYBE),
        ("en", "see No", Kind.NUMBER_WORD),
        ("en", "George W", Kind.INITIAL),
        ("en", "take vitamin C", Kind.LETTERED),
        ("en", "we are 12", Kind.ORDINAL),
        ("en", "it cost 120", Kind.PLAIN),
        ("en", "12", Kind.MARKER),
        ("en", "- 12", Kind.MARKER),
        ("en", "Step 3", Kind.MARKER),
        ("en", "IV", Kind.MARKER),
        ("en", "he sat", Kind.PLAIN),
        ("en", "on Sat", Kind.MAYBE),
        ("en", "see https://a.b/etc", Kind.PLAIN),
        ("de", "am z. B", Kind.NEVER),
        ("de", "in der Goethestr", Kind.NUMBER_WORD),
        ("ru", "в 1990 г", Kind.FINAL),
        ("ru", "живёт в г", Kind.NEVER),
        ("ru", "и т. д", Kind.FINAL),
        ("ko", "네", Kind.PLAIN),
        ("sk", "príslušník XII", Kind.MAYBE),
    ],
)
def test_the_word_before_a_full_stop_has_a_kind(language: str, text: str, kind: Kind) -> None:
    assert kind_of(View(text, 0, "", False, rules_for(language)), len(text))[0] is kind
