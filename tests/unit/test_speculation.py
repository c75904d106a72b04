"""Drafts: begun where the words look finished and there is headroom, kept where the final text says the same."""

from __future__ import annotations

import pytest

from gateway.config import SpeculationSettings
from gateway.speculation import Headroom, Speculation, Step, is_same, normalized

SETTINGS = SpeculationSettings()


def offer(speculation: Speculation, text: str, *, looks_finished: bool = True, has_headroom: bool = True) -> Step:
    """A likely end, and the draft that follows from it."""
    step = speculation.on_likely_end(text, looks_finished=looks_finished, has_headroom=has_headroom)
    if step == "drop":
        speculation.forget()
    if step in ("start", "replace"):
        speculation.began(text)
    return step


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("What time is it", "What time is it?", True),
        ("what time  is it", "What time, is it.", True),
        ("Ice cream", "icecream", True),
        ("１２ 点", "12点", True),
        ("今天天气怎么样", "今天天气怎么样？", True),
        ("今天天氣怎麼樣", "今天天气怎么样？", True),
        ("What time is it", "What time was it", False),
        ("It costs 1.5", "It costs 15", False),
        ("At 1:30", "At 130", False),
        ("Book a table", "Book a table for two", False),
        ("", "...", True),
    ],
)
def test_two_readings_of_the_same_speech_are_the_same(one: str, two: str, same: bool) -> None:
    assert is_same(one, two) is same


def test_what_is_left_of_a_text_is_stable() -> None:
    once = normalized("Well, it's 3.5 -- or 4, OK?")
    assert normalized(once) == once


def test_a_draft_of_the_same_text_is_committed() -> None:
    speculation = Speculation(SETTINGS)
    assert offer(speculation, "What time is it") == "start"
    assert offer(speculation, "What time is it?") == "keep"
    assert speculation.on_final("what time is it?") == "commit"
    assert not speculation.is_held


def test_a_draft_of_another_text_is_dropped() -> None:
    speculation = Speculation(SETTINGS)
    offer(speculation, "What time")
    assert speculation.on_final("What time is it?") == "drop"


def test_a_better_reading_replaces_the_draft() -> None:
    speculation = Speculation(SETTINGS)
    offer(speculation, "What time")
    assert offer(speculation, "What time is it?") == "replace"
    assert speculation.on_final("What time is it?") == "commit"


def test_a_better_reading_without_headroom_or_end_drops_the_draft() -> None:
    for looks_finished, has_headroom in ((True, False), (False, True)):
        speculation = Speculation(SETTINGS)
        offer(speculation, "What time")
        assert offer(speculation, "What time and", looks_finished=looks_finished, has_headroom=has_headroom) == "drop"


@pytest.mark.parametrize(
    ("text", "looks_finished", "has_headroom", "enabled"),
    [("Hi", False, True, True), ("Hi", True, False, True), ("Hi", True, True, False), ("...", True, True, True)],
)
def test_no_draft_without_words_end_headroom_and_leave(text: str, looks_finished: bool, has_headroom: bool, enabled: bool) -> None:
    speculation = Speculation(SpeculationSettings(enabled=enabled))
    assert offer(speculation, text, looks_finished=looks_finished, has_headroom=has_headroom) == "skip"
    assert speculation.on_final(text) == "none"


def test_one_utterance_starts_a_bounded_number_of_drafts() -> None:
    speculation = Speculation(SpeculationSettings(max_restarts=2))
    steps = []
    for n in range(6):
        steps.append(offer(speculation, f"text {n}"))
        speculation.forget()
    assert steps == ["start", "start", "start", "skip", "skip", "skip"]


def test_a_speaker_who_goes_on_has_no_draft() -> None:
    speculation = Speculation(SETTINGS)
    assert not speculation.forget()
    offer(speculation, "What time is it")
    assert speculation.forget()
    assert speculation.on_final("What time is it") == "none"


def test_headroom_is_shared_by_replies_and_drafts() -> None:
    settings = SpeculationSettings(max_drafts=2, max_replies=4)
    headroom = Headroom()
    assert headroom.admits_draft(settings)
    headroom.n_drafts = 2
    assert not headroom.admits_draft(settings)
    headroom.n_drafts, headroom.n_replies = 1, 3
    assert not headroom.admits_draft(settings)
    headroom.n_replies = 2
    assert headroom.admits_draft(settings)
