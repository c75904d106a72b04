"""What a session may ask of its endpointing: bounds, refusals, and the waits that come of it."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.config import EndpointingSettings
from gateway.endpointing import Reading, adapted, in_force, wait_ms
from gateway.errors import BadMessage
from gateway.events import Endpointing

OWN = Endpointing(speech_probability=0.5, preroll_ms=320)
SETTINGS = EndpointingSettings()
SCORES = (None, 0.0, 0.1, 0.5, 0.65, 0.9, 1.0)


def waits(wish: Endpointing) -> list[float]:
    """Of every score and reading."""
    numbers = adapted(SETTINGS, in_force(OWN, wish))
    return [wait_ms(numbers, score, reading) for score in SCORES for reading in Reading]


def test_without_a_wish_the_gateways_own_numbers_hold() -> None:
    assert in_force(OWN, Endpointing()) == OWN
    assert adapted(SETTINGS, OWN) == SETTINGS


@pytest.mark.parametrize(
    ("wish", "numbers"),
    [
        (Endpointing(speech_probability=0.8), (0.8, 320, None)),
        (Endpointing(speech_probability=0.0), (0.1, 320, None)),
        (Endpointing(speech_probability=1.0), (0.95, 320, None)),
        (Endpointing(preroll_ms=0), (0.5, 0, None)),
        (Endpointing(preroll_ms=60_000), (0.5, 2000, None)),
        (Endpointing(silence_ms=500), (0.5, 320, 500)),
        (Endpointing(silence_ms=0), (0.5, 320, 100)),
        (Endpointing(silence_ms=60_000), (0.5, 320, 5000)),
    ],
)
def test_a_wish_is_kept_inside_the_bounds(wish: Endpointing, numbers: tuple[float, int, int | None]) -> None:
    held = in_force(OWN, wish)
    assert (held.speech_probability, held.preroll_ms, held.silence_ms) == numbers


@pytest.mark.parametrize(
    "wish",
    [
        Endpointing(speech_probability=1.1),
        Endpointing(speech_probability=-0.1),
        Endpointing(speech_probability=float("nan")),
        Endpointing(preroll_ms=-1),
        Endpointing(silence_ms=-1),
        Endpointing(idle_timeout_ms=0),
        Endpointing(idle_timeout_ms=600_001),
    ],
)
def test_a_wish_that_means_nothing_is_refused_with_what_would_do(wish: Endpointing) -> None:
    with pytest.raises(BadMessage, match=r"endpointing\.[a-z_]+ is .*; expected"):
        in_force(OWN, wish)


def test_a_silence_that_was_asked_for_is_waited_exactly() -> None:
    assert set(waits(Endpointing(silence_ms=500))) == {500}


def test_eagerness_orders_every_wait() -> None:
    low, medium, high = (waits(Endpointing(eagerness=eagerness)) for eagerness in ("low", "medium", "high"))
    assert waits(Endpointing(eagerness="auto")) == medium == waits(Endpointing())
    assert all(slow > usual >= quick for slow, usual, quick in zip(low, medium, high, strict=True))
    assert sum(high) < 0.8 * sum(medium)
    assert max(low) <= 2 * max(medium)


@pytest.mark.parametrize("eagerness", ["low", "medium", "high", "auto"])
@pytest.mark.parametrize(("sure", "unsure", "longest"), [(192, 800, 1500), (192, 200, 200), (1500, 4000, 9000)])
def test_the_waits_stay_in_order_and_bounded(eagerness: str, sure: int, unsure: int, longest: int) -> None:
    settings = structs.replace(SETTINGS, sure_ms=sure, unsure_ms=unsure, longest_ms=longest)
    numbers = adapted(settings, Endpointing(eagerness=eagerness))  # type: ignore[arg-type]  # one of the four
    assert settings.score_ms <= numbers.sure_ms <= numbers.unsure_ms <= numbers.longest_ms <= 5000


def test_another_threshold_moves_the_end_of_speech_with_it() -> None:
    numbers = adapted(SETTINGS, in_force(OWN, Endpointing(speech_probability=0.8)))
    assert [numbers.speech_probability, numbers.silence_probability] == pytest.approx([0.8, 0.65])
    numbers = adapted(SETTINGS, in_force(OWN, Endpointing(speech_probability=0.1)))
    assert numbers.silence_probability == 0.05
