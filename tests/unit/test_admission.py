"""Admit or refuse."""

from __future__ import annotations

import pytest

from gateway.admission import BAD_MESSAGES, KNOCKERS, SPARE_SOCKETS, Admission, Crowd, Guesses, Knocks, Mistakes, Rate
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


def test_who_comes_back_stands_beside_the_old_connection_until_that_is_found_dead() -> None:
    made = ready(2)
    made.connected = 2
    assert made.refusal(is_back=True) is None
    made.connected = 3
    assert isinstance(made.refusal(), Overloaded)
    assert made.is_full(), "who said so and comes for no session finds no place"
    made.connected = 2 + SPARE_SOCKETS
    assert isinstance(made.refusal(is_back=True), Overloaded), "so many and no more"
    made.is_draining = True
    made.connected = 1
    assert isinstance(made.refusal(is_back=True), Draining)


def test_an_address_has_a_few_sockets_more_for_who_comes_back() -> None:
    crowd = Crowd(1)
    assert crowd.enter("a")
    assert not crowd.has_room("a")
    assert not crowd.enter("a")
    assert [crowd.enter("a", 2) for _ in range(3)] == [True, True, False]
    assert crowd.has_room("b")
    assert len(crowd) == 3


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


def test_a_rate_under_one_a_second_lets_one_through_at_a_time() -> None:
    rate = Rate(0.5, 0.0)
    assert [rate.take(at) for at in (0.0, 0.1, 1.9, 2.0, 2.1)] == [True, False, False, True, False]


def test_wrong_keys_slow_their_address_down_and_no_other() -> None:
    guesses = Guesses(3)
    for _ in range(3):
        assert guesses.wait_s("a", 0.0) == 0.0
        guesses.failed("a", 0.0)
    assert guesses.wait_s("a", 0.0) == pytest.approx(20.0)
    assert guesses.wait_s("b", 0.0) == 0.0
    assert guesses.wait_s("a", 15.0) == pytest.approx(5.0)
    assert guesses.wait_s("a", 20.001) == 0.0
    guesses.failed("a", 20.001)
    assert guesses.wait_s("a", 20.001) > 19


def test_guesses_remember_a_bounded_number_of_addresses() -> None:
    guesses = Guesses(1)
    for number in range(KNOCKERS + 1):
        guesses.failed(str(number), 0.0)
    assert guesses.wait_s("0", 0.0) == 0.0
    assert guesses.wait_s("1", 0.0) > 0


def test_an_address_holds_so_many_sockets_and_leaves_nothing_behind() -> None:
    crowd = Crowd(2)
    assert [crowd.enter("a") for _ in range(3)] == [True, True, False]
    assert crowd.enter("b")
    crowd.leave("a")
    assert crowd.enter("a")
    for address in ("a", "a", "b"):
        crowd.leave(address)
    assert len(crowd) == 0
    assert not crowd._open


def test_ten_mistakes_in_a_minute_are_too_many() -> None:
    mistakes = Mistakes()
    assert not any(mistakes.add(n * 1.0) for n in range(BAD_MESSAGES - 1))
    assert mistakes.add(20.0)


def test_old_mistakes_are_forgiven() -> None:
    mistakes = Mistakes()
    assert not any(mistakes.add(n * 10.0) for n in range(30))
