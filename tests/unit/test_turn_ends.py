"""On real scores and readings (`tests/load/turn_ends_hearing`) the rules beat plain silence timers, also where nothing was tuned."""

from __future__ import annotations

import pytest

from gateway.config import EndpointingSettings
from gateway.endpointing import Reading, read
from tests.load.turn_ends_bench import heard, judged, ours, timer

SILENCES = heard()


@pytest.mark.parametrize("half", ["a", "b", "c"])
@pytest.mark.parametrize("text_ms", [112.0, 450.0])
def test_the_rules_interrupt_less_and_answer_sooner_than_timers(half: str, text_ms: float) -> None:
    found = [silence for silence in SILENCES if silence.half == half]
    rules = judged(found, ours(text_ms))
    for ms in (500, 800):
        plain = judged(found, timer(ms))
        assert rules["cut_ins_percent"] < plain["cut_ins_percent"]
        assert rules["median_wait_ms"] < plain["median_wait_ms"]


@pytest.mark.parametrize("half", ["a", "b", "c"])
def test_a_quarter_fewer_are_interrupted_than_by_the_longer_timer_and_nine_of_ten_wait_at_most_as_long_as_they_may(half: str) -> None:
    found = [silence for silence in SILENCES if silence.half == half]
    rules = judged(found, ours())
    assert rules["cut_ins_percent"] <= 0.75 * judged(found, timer(800))["cut_ins_percent"]
    assert rules["p90_wait_ms"] <= 1200


def test_what_may_have_been_said_instead_makes_no_sure_end_slower() -> None:
    settings = EndpointingSettings()
    sure = [s for s in SILENCES if s.is_end and s.score >= settings.sure_score and read(s.text) in (Reading.COMPLETE, Reading.OPEN)]
    assert len(sure) > 150
    assert any(s.reading is not read(s.text) for s in sure)
    assert {ours()(s) for s in sure} == {settings.sure_ms}


def test_the_set_is_as_large_and_as_mixed_as_it_says() -> None:
    said = {(s.half, s.kind, s.language, s.voice, s.said) for s in SILENCES if s.is_end}
    assert len(said) >= 300
    for half in "abc":
        assert {s.kind for s in SILENCES if s.half == half} >= {"complete", "pause", "hesitation", "dictation", "recorded"}
        assert {s.language for s in SILENCES if s.half == half} == {"en", "zh"}
    voices = [{s.voice for s in SILENCES if s.half == half} for half in "abc"]
    assert not voices[0] & voices[1]
    assert not (voices[0] | voices[1]) & voices[2]
