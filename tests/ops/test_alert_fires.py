"""End to end: a slow engine behind a real gateway, a real Prometheus, and the promise's alerts."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.ops.conftest import FOR_S, SLOW_TTFT_MS, Watched

PATIENCE_S = 90.0


@pytest.mark.parametrize("alert", ["StrettoFirstSegmentSlow", "StrettoFirstAudioSlow"])
def test_a_slow_engine_makes_the_promises_alert_fire(watched: Watched, alert: str, record_property: Callable[[str, object], None]) -> None:
    ends_at = watched.talking_since + PATIENCE_S
    while alert not in (firing := watched.prometheus.firing()) and time.monotonic() < ends_at:
        time.sleep(0.2)
    assert alert in firing, f"firing after {PATIENCE_S} s: {sorted(firing)}"
    seconds = time.monotonic() - watched.talking_since
    record_property("seconds_to_fire", seconds)
    print(f"{alert}: fired {seconds:.1f} s after the load began")
    assert seconds > FOR_S
    assert float(firing[alert]["value"]) >= SLOW_TTFT_MS / 1000, "the percentile tells the wait that was forced"
    assert "promised are" in firing[alert]["annotations"]["summary"]


def test_the_scrape_says_what_it_cost(watched: Watched) -> None:
    while (
        not (found := watched.prometheus.query('scrape_samples_scraped{job="stretto"}'))
        and time.monotonic() < watched.talking_since + PATIENCE_S
    ):
        time.sleep(0.2)
    assert float(found[0]["value"][1]) > 200
    assert watched.prometheus.query('up{job="stretto"} == 1'), "the key was taken"
