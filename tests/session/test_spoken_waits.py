"""How long speakers wait, with engines scripted as a GPU serves them: the short form of `tests.load.listening_bench --virtual`."""

from __future__ import annotations

from tests.load.listening_bench import converse
from tests.unit.test_segmenter import load_cases

REPLIES = [text.replace("¦", "") for _, text in load_cases() if len(text) > 12 and "<" not in text]


async def test_who_has_surely_finished_hears_the_answer_within_the_promise() -> None:
    figures = await converse(12, 12.0, REPLIES, {}, seed=1)
    assert figures["sure"]["n"] > 15
    assert figures["sure"]["p50_ms"] <= 450
    assert figures["sure"]["p95_ms"] <= 600
    without = await converse(12, 12.0, REPLIES, {"speculation": {"enabled": False}}, seed=1)
    assert figures["unsure"]["p50_ms"] < without["unsure"]["p50_ms"] - 100, "drafts hide the wait for the end"
