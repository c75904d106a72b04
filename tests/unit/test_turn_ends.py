"""On real scores and readings (`tests/load/turn_ends_hearing`) the rules beat plain silence timers, also where nothing was tuned."""

from __future__ import annotations

import pytest

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


def test_the_set_is_as_large_and_as_mixed_as_it_says() -> None:
    said = {(s.half, s.kind, s.language, s.voice, s.said) for s in SILENCES if s.is_end}
    assert len(said) >= 300
    for half in "abc":
        assert {s.kind for s in SILENCES if s.half == half} >= {"complete", "pause", "hesitation", "dictation", "recorded"}
        assert {s.language for s in SILENCES if s.half == half} == {"en", "zh"}
    voices = [{s.voice for s in SILENCES if s.half == half} for half in "abc"]
    assert not voices[0] & voices[1]
    assert not (voices[0] | voices[1]) & voices[2]
