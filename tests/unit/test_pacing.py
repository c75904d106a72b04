"""When frames are due and how much was heard."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pacing import PlayoutClock, frame_ms, put_off


def sending(length_ms: float = 1000, at: float = 10.0) -> PlayoutClock:
    clock = PlayoutClock()
    clock.sent(length_ms, at)
    return clock


def test_nothing_is_heard_before_anything_was_sent() -> None:
    assert PlayoutClock().played_ms(5.0) == 0


def test_the_send_clock_counts_until_the_first_report() -> None:
    assert sending().played_ms(10.4) == pytest.approx(400)


def test_no_more_is_heard_than_was_sent() -> None:
    clock = sending()
    assert clock.played_ms(99) == 1000
    assert clock.is_played_out(99)


def test_the_clock_waits_where_the_audio_ran_dry() -> None:
    clock = sending(500)
    clock.sent(500, 12.0)
    assert clock.played_ms(12.0) == 500
    assert clock.played_ms(12.2) == pytest.approx(700)


def test_a_report_rules_from_then_on() -> None:
    clock = sending()
    assert clock.report(100, 10.5)
    assert clock.played_ms(10.6) == pytest.approx(200)


def test_silence_after_a_report_is_bridged_for_350_ms_only() -> None:
    clock = sending()
    clock.report(100, 10.5)
    assert clock.played_ms(20) == pytest.approx(450)
    assert not clock.is_played_out(20)


def test_a_final_report_ends_the_guessing() -> None:
    clock = sending()
    clock.report(300, 10.5, final=True)
    assert clock.played_ms(20) == 300
    assert clock.is_played_out(20)


@pytest.mark.parametrize("report", [-1, "5", None, float("nan"), True, [3], b"1"])
def test_reports_without_sense_are_ignored(report: Any) -> None:
    clock = sending()
    assert not clock.report(report, 10.2)
    assert not clock.reported


def test_a_report_that_goes_back_is_ignored() -> None:
    clock = sending()
    clock.report(500, 10.5)
    assert not clock.report(400, 10.6)


@pytest.mark.parametrize("report", [2000, float("inf")])
def test_a_report_beyond_what_was_sent_is_clamped(report: float) -> None:
    clock = sending()
    assert clock.report(report, 10.2)
    assert clock.played_ms(10.2) == 1000


def test_a_frame_is_due_when_the_lead_allows_it() -> None:
    clock = sending(1000)
    assert clock.due_in_s(1000, 10.0) == 0
    clock.sent(100, 10.0)
    assert clock.due_in_s(1000, 10.0) == pytest.approx(0.1)
    assert clock.due_in_s(1000, 10.1) == 0


def test_a_pause_stops_the_clock_and_resume_goes_on() -> None:
    clock = sending()
    clock.pause(10.2)
    assert clock.played_ms(15) == pytest.approx(200)
    clock.resume(15)
    assert clock.played_ms(15.1) == pytest.approx(300)


def test_a_segments_first_frame_is_short() -> None:
    assert [frame_ms(n) for n in range(3)] == [20, 100, 100]


def test_a_clock_that_was_not_paused_runs_on() -> None:
    clock = PlayoutClock()
    clock.sent(3000, 10)
    clock.resume(12)
    assert clock.played_ms(12) == 2000


def test_a_report_corrects_our_estimate_of_a_player_that_stands_still() -> None:
    clock = PlayoutClock()
    clock.sent(1000, 0.0)
    clock.report(100, 0.1)
    clock.pause(0.4)
    assert clock.played_ms(5.0) == pytest.approx(400)
    assert clock.report(250, 0.45), "less than we believed, and not less than the client has said"
    assert clock.played_ms(5.0) == pytest.approx(250)
    assert not clock.report(200, 0.5), "but a client never goes back behind its own word"


@pytest.mark.parametrize(
    ("deadline_s", "now_s", "moved_to_s"),
    [
        (None, 100.0, 111.0),  # there was none
        (120.0, 100.0, 111.0),  # the first wait was longer
        (111.0, 100.02, None),  # just set: 50 deltas a second set no timer
        (111.0, 101.0, None),
        (111.0, 101.01, 112.01),  # it would end the wait too early
    ],
)
def test_a_deadline_is_moved_only_when_it_would_come_too_early_or_too_late(deadline_s: float, now_s: float, moved_to_s: float) -> None:
    found = put_off(deadline_s, now_s, 10.0)
    assert found == (None if moved_to_s is None else pytest.approx(moved_to_s))


def test_a_wait_for_a_sign_of_life_ends_at_most_a_tenth_late() -> None:
    deadline_s, last_s = 0.0, 0.0
    for n in range(400):
        last_s = n * 0.37
        deadline_s = put_off(deadline_s, last_s, 10.0) or deadline_s
        assert 10.0 <= deadline_s - last_s <= 11.0 + 1e-9
