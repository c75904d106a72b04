"""`stretto load` at a gateway that somebody else runs: over TLS, with a key, its use read from its metrics; faults by their codes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.bench.command import insecure_context
from gateway.load.load import Load, Order
from gateway.load.plan import Mix, Plan
from gateway.load.report import Report
from tests.running import Running, gateway

KEY = "a-key-for-tests"
SETTINGS = {
    "STRETTO_KEYS": KEY,
    "STRETTO_FAKE__REPLY": "One moment. Here it is.",
    "STRETTO_FAKE__TTFT_MS": "5",
    "STRETTO_FAKE__ITL_MS": "1",
    "STRETTO_SESSION__MAX_SESSIONS": "4",
}
PLAN = Plan(steps=(4,), step_s=60, settle_s=0.5, turns=1, think_s=0.2, mix=Mix(slow=0.25), slow_s=0.2)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    cache: Path = tmp_path_factory.mktemp("cache")
    with gateway({**SETTINGS, "STRETTO_CACHE_DIR": str(cache)}, "--tls") as running:
        yield running


def loaded(house: Running, key: str, plan: Plan = PLAN, *, insecure: bool = True) -> Report:
    url = house.voice_url.replace("ws:", "wss:")
    tls = insecure_context(insecure=True) if insecure else None
    order = Order(plan=plan, url=url, key=key, tls=tls, engines="those of the running gateway", n_crews=2, insecure=insecure)
    return asyncio.run(Load(order).run())


def test_a_gateway_of_somebody_else_is_loaded_and_measured(house: Running) -> None:
    found = loaded(house, KEY)
    counts = found.whole.counts
    assert (counts["visits"], counts["seated"], counts["asked"], counts["completed"]) == (4, 4, 4, 4)
    assert found.whole.errors == {}
    assert found.is_kept
    assert found.whole.times["first_audio"].n == 4
    known = [sample for sample in found.samples if sample.rss_bytes is not None]
    assert known, found.notes
    assert known[-1].rss_bytes is not None
    assert known[-1].rss_bytes > 10_000_000
    assert known[-1].cpu_s is not None


def test_a_wrong_key_is_counted_by_its_code_and_kept_from_the_metrics(house: Running) -> None:
    found = loaded(house, "wrong")
    assert found.whole.errors == {"unauthorized": 4}
    assert found.whole.counts["refused"] == 4
    assert not found.is_kept
    assert any("no figures from https://" in note and "401" in note for note in found.notes)


def test_guests_beyond_the_places_are_counted_by_their_code(house: Running) -> None:
    found = loaded(house, KEY, Plan(steps=(6,), step_s=6.0, settle_s=0.0, think_s=0.5))
    assert found.whole.errors == {"overloaded": 2}
    assert (found.whole.counts["seated"], found.whole.counts["refused"]) == (4, 2)
    assert found.gateway_errors == {"overloaded": 2}
