"""Admit or refuse."""

from __future__ import annotations

from gateway.admission import BAD_MESSAGES, KNOCKERS, Admission, Knocks, Mistakes, Rate
from gateway.errors import Draining, Overloaded


def ready(n: int) -> Admission:
    made = Admission(n)
    made.is_ready = True
    return made


def test_nobody_is_let_in_before_the_engines_are_ready() -> None:
    refusal = Admission(4).refusal()
    assert isinstance(refusal, Overloaded)
    assert refusal.retry_after_ms


def test_the_one_too_many_is_refused() -> None:
    made = ready(2)
    made.connected = 1
    assert made.refusal() is None
    made.connected = 2
    assert isinstance(made.refusal(), Overloaded)


def test_a_detached_session_keeps_its_place_against_newcomers_only() -> None:
    made = ready(2)
    made.connected, made.detached = 1, 1
    assert made.refusal() is None, "its own client may be coming back"
    made.connected = 2
    assert made.is_full(), "a newcomer finds no place"


def test_a_draining_server_takes_nobody() -> None:
    made = ready(2)
    made.is_draining = True
    assert isinstance(made.refusal(), Draining)


def test_the_rate_refills_with_time() -> None:
    rate = Rate(10, 0.0)
    assert all(rate.take(0.0) for _ in range(10))
    assert not rate.take(0.0)
    assert rate.take(0.11)
    assert not rate.take(0.11)


def test_each_address_has_its_own_rate_of_knocks() -> None:
    knocks = Knocks(2)
    assert [knocks.take("a", 0.0) for _ in range(3)] == [True, True, False]
    assert knocks.take("b", 0.0)
    assert knocks.take("a", 1.0)


def test_knocks_remember_a_bounded_number_of_addresses() -> None:
    knocks = Knocks(1)
    assert knocks.take("first", 0.0)
    for number in range(KNOCKERS):
        knocks.take(str(number), 0.0)
    assert knocks.take("first", 0.0), "forgotten, so it starts anew"


def test_ten_mistakes_in_a_minute_are_too_many() -> None:
    mistakes = Mistakes()
    assert not any(mistakes.add(n * 1.0) for n in range(BAD_MESSAGES - 1))
    assert mistakes.add(20.0)


def test_old_mistakes_are_forgiven() -> None:
    mistakes = Mistakes()
    assert not any(mistakes.add(n * 10.0) for n in range(30))
