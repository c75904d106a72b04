"""When load is shed: the rule alone, told what was seen and when."""

from __future__ import annotations

import pytest

from gateway.config import SheddingSettings
from gateway.errors import Shedding
from gateway.shedding import Level, Pressure, Readings

SETTINGS = SheddingSettings(lag_ms=20, ttft_ms=1000, ease_share=0.5, window_s=5, calm_s=3)
TICK_S = 0.05


class Process:
    """Wakes every 50 ms and decides each time; `lag_ms` is how late it wakes from now on."""

    def __init__(self, settings: SheddingSettings = SETTINGS) -> None:
        self.pressure, self.now, self.lag_ms, self.n = Pressure(settings), 100.0, 0.0, 0
        self.levels: list[Level] = ["open"]

    def run(self, seconds: float) -> Process:
        ends = self.now + seconds
        while self.now < ends:
            self.now += TICK_S + self.lag_ms / 1000
            self.pressure.woke(self.lag_ms, self.now)
            if self.pressure.update(self.now):
                self.levels.append(self.pressure.level)
        return self

    def turn(self, ttft_ms: float) -> None:
        self.n += 1
        self.pressure.asked(f"r{self.n}", self.now - ttft_ms / 1000)
        self.pressure.answered(f"r{self.n}", self.now)


def test_a_process_that_wakes_in_time_sheds_nothing() -> None:
    process = Process()
    process.lag_ms = 9.0
    assert process.run(60).levels == ["open"]
    assert process.pressure.readings.lag_ms == 9.0


def test_what_nobody_waits_for_goes_first_and_then_newcomers() -> None:
    process = Process()
    process.lag_ms = 12.0
    process.run(20)
    assert process.levels == ["open", "eased"]
    assert process.pressure.is_eased
    assert not process.pressure.is_closed
    process.lag_ms = 25.0
    process.run(20)
    assert process.levels == ["open", "eased", "closed"]
    assert process.pressure.reason == "lag"


def test_one_long_stall_closes_nothing() -> None:
    process = Process()
    process.run(10)
    process.now += 4.0
    process.pressure.woke(4000.0, process.now)
    assert process.run(10).levels == ["open"]


def test_a_loop_that_wakes_once_a_second_is_closed() -> None:
    process = Process()
    process.lag_ms = 950.0
    process.run(10)
    assert process.pressure.is_closed


def test_it_opens_step_by_step_when_all_was_well_for_long_enough() -> None:
    process = Process()
    process.lag_ms = 30.0
    process.run(10)
    process.lag_ms, closed_at = 0.0, process.now
    while process.pressure.level != "open":
        process.run(TICK_S)
    assert process.levels == ["open", "closed", "eased", "open"] or process.levels == ["open", "eased", "closed", "eased", "open"]
    assert process.now - closed_at >= 2 * SETTINGS.calm_s
    assert process.pressure.reason == ""


def test_a_load_around_its_bound_does_not_open_and_close_in_waves() -> None:
    process = Process()
    for _ in range(20):
        for lag_ms in (25.0, 8.0):
            process.lag_ms = lag_ms
            process.run(SETTINGS.calm_s * 0.7)
    assert process.levels.count("closed") == 1, process.levels


@pytest.mark.parametrize(("ttft_ms", "level"), [(100, "open"), (500, "eased"), (1000, "closed")])
def test_turns_that_wait_for_the_model_count(ttft_ms: float, level: Level) -> None:
    process = Process()
    for _ in range(10):
        process.turn(ttft_ms)
        process.run(0.5)
    assert process.pressure.level == level
    assert process.pressure.reason == ("" if level == "open" else "ttft")


def test_a_few_slow_turns_among_many_fast_ones_do_not() -> None:
    process = Process()
    for n in range(40):
        process.turn(5000 if n % 4 == 0 else 50)
        process.run(0.25)
    assert process.levels == ["open"]


def test_slow_turns_of_one_speaker_close_nothing() -> None:
    process = Process()
    for _ in range(3):
        process.turn(9000)
    assert process.run(3).levels == ["open"]


def test_an_engine_that_answers_nothing_closes_while_its_turns_still_wait() -> None:
    process = Process()
    for n in range(5):
        process.pressure.asked(f"stuck{n}", process.now)
    assert process.run(0.9).levels[-1] == "open"
    assert process.run(0.3).levels[-1] == "closed"
    for n in range(5):
        process.pressure.gave_up(f"stuck{n}")
    assert process.run(2 * SETTINGS.calm_s + 1).levels[-1] == "open"


def test_an_answer_that_nobody_waited_for_is_nothing() -> None:
    pressure = Pressure(SETTINGS)
    pressure.answered("unknown", 1.0)
    pressure.gave_up("unknown")
    pressure.update(2.0)
    assert pressure.readings == Readings()


def test_a_limit_of_zero_is_not_watched() -> None:
    process = Process(SheddingSettings(lag_ms=0, ttft_ms=0))
    process.lag_ms = 500
    for _ in range(10):
        process.turn(60_000)
    assert process.run(10).levels == ["open"]


def test_newcomers_are_told_when_to_come_back() -> None:
    process = Process()
    process.lag_ms = 30
    process.run(10)
    refusal = process.pressure.refusal()
    assert isinstance(refusal, Shedding)
    assert (refusal.code, refusal.reason, refusal.retry_after_ms, refusal.http_status) == ("overloaded", "shedding", 3000, 503)
    assert "late" in str(refusal)
