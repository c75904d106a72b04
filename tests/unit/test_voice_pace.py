"""How far ahead a voice works, by what has been learned of it."""

from __future__ import annotations

import pytest

from gateway.speaker import VoicePace

V = "studio/amy"


def learned(*segments: tuple[float, float], beside: tuple[tuple[float, float], ...] = ()) -> VoicePace:
    """(RTF, seconds of audio) of segments made alone, then of some made beside another one."""
    pace = VoicePace()
    for rtf, audio_s in segments:
        pace.learn(V, rtf * audio_s, audio_s, alone=True)
    for rtf, audio_s in beside:
        pace.learn(V, rtf * audio_s, audio_s, alone=False)
    return pace


@pytest.mark.parametrize(
    ("pace", "at_once", "on_the_way"),
    [
        (learned(), 1, 2),
        (learned((0.1, 3)), 1, 2),
        (learned((0.9, 3)), 2, 4),
        (learned((1.2, 3)), 2, 4),
        (learned((1.2, 3), beside=((1.3, 3),)), 2, 4),  # a service: two at once are two
        (learned((1.2, 3), beside=((2.4, 3),)), 1, 4),  # a local model: both only wait for each other
        (learned((5.0, 0.4)), 1, 2),  # a short segment tells nothing
        (learned((1.2, 3), (0.2, 3), (0.2, 3), (0.2, 3)), 1, 2),  # what was slow and is fast again
    ],
)
def test_only_a_slow_voice_works_further_ahead_and_only_where_it_helps(pace: VoicePace, at_once: int, on_the_way: int) -> None:
    assert (pace.at_once(V), pace.on_the_way(V)) == (at_once, on_the_way)


@pytest.mark.parametrize(
    ("rtf", "audio_ms", "made_ms", "ahead_ms", "hold_ms"),
    [
        (0.0, 3000, 0, 0, 0),
        (0.9, 3000, 0, 0, 0),
        (1.25, 3000, 0, 0, 600 + 100),
        (1.25, 3000, 700, 0, 0),  # it is there
        (1.25, 3000, 0, 880, 0),  # what plays in front of it is long enough: 880 / 1.25 are made meanwhile
        (1.25, 3000, 0, 850, 700),  # not quite: the pause comes anyway
        (3.0, 30_000, 0, 0, 1500),  # nobody waits longer than that
    ],
)
def test_a_segment_begins_when_it_can_be_heard_without_a_gap(
    rtf: float, audio_ms: float, made_ms: float, ahead_ms: float, hold_ms: float
) -> None:
    pace = learned((rtf, 3.0)) if rtf else VoicePace()
    assert pace.hold_ms(V, audio_ms, made_ms, ahead_ms) == pytest.approx(hold_ms)
