"""Who may have the last places."""

from __future__ import annotations

import pytest

from gateway.fair_share import is_fair


def taken_by_greed(first: str, weights: dict[str, float], places: int, reserve: float) -> dict[str, int]:
    """Places each key gets when `first` takes all it can before the others come, in their order."""
    held = dict.fromkeys(weights, 0)
    for key in (first, *(name for name in weights if name != first)):
        while sum(held.values()) < places and is_fair(key, held, weights, places, reserve):
            held[key] += 1
    return held


def test_a_key_alone_takes_everything() -> None:
    assert taken_by_greed("a", {"a": 1.0}, 10, 0.5) == {"a": 10}
    assert is_fair("", {"": 63}, {}, 64, 0.1), "no keys are configured"


def test_one_key_cannot_take_all_places_from_another() -> None:
    assert taken_by_greed("a", {"a": 1.0, "b": 1.0}, 10, 0.1) == {"a": 9, "b": 1}
    assert taken_by_greed("a", {"a": 1.0, "b": 1.0}, 10, 0.3) == {"a": 7, "b": 3}


def test_without_a_reserve_the_first_one_takes_it_all() -> None:
    assert taken_by_greed("a", {"a": 1.0, "b": 1.0}, 10, 0.0) == {"a": 10, "b": 0}


def test_no_more_is_kept_than_others_are_short_of() -> None:
    assert taken_by_greed("a", {"a": 9.0, "b": 1.0}, 10, 0.5) == {"a": 9, "b": 1}


def test_weights_make_shares() -> None:
    held = {"big": 5, "small": 1}
    weights = {"big": 3.0, "small": 1.0}
    assert is_fair("big", held, weights, 8, 1.0), "its share is six"
    assert not is_fair("big", {"big": 6, "small": 1}, weights, 8, 1.0)
    assert is_fair("small", {"big": 6, "small": 1}, weights, 8, 1.0)


def test_places_that_a_greedy_key_gives_back_go_to_the_others() -> None:
    weights = {"a": 1.0, "b": 1.0}
    held = taken_by_greed("a", weights, 10, 0.1)
    for _ in range(20):
        held["a"] -= 1
        taker = next((key for key in ("a", "b") if is_fair(key, held, weights, 10, 0.1)), None)
        assert taker is not None
        held[taker] += 1
    assert held == {"a": 5, "b": 5}


@pytest.mark.parametrize("places", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("reserve", [0.0, 0.1, 0.5, 1.0])
def test_no_place_stays_empty_when_everybody_wants_in(places: int, reserve: float) -> None:
    weights = {"a": 1.0, "b": 2.0, "c": 0.5}
    held = dict.fromkeys(weights, 0)
    while sum(held.values()) < places:
        taker = next((key for key in weights if is_fair(key, held, weights, places, reserve)), None)
        assert taker is not None, f"{places - sum(held.values())} places left, held {held}"
        held[taker] += 1


def test_a_key_that_nobody_configured_weighs_one() -> None:
    assert not is_fair("stranger", {"stranger": 5}, {"known": 1.0}, 6, 0.5)
    assert is_fair("stranger", {"stranger": 2}, {"known": 1.0}, 6, 0.5)
