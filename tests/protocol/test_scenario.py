"""The same conversation through both codecs is the same conversation."""

from __future__ import annotations

import pytest

from tests.doubles.answering import LONG
from tests.protocol.scenario import SCENARIO, NativeClient, Outcome, RealtimeClient, play

pytestmark = pytest.mark.virtual


async def both() -> tuple[Outcome, Outcome]:
    return await play(NativeClient), await play(RealtimeClient)


async def test_both_protocols_come_to_the_same_items_replies_and_sound() -> None:
    native, realtime = await both()
    assert native.items == realtime.items
    assert native.replies == realtime.replies


async def test_the_model_is_told_the_same() -> None:
    native, realtime = await both()
    assert native.prompts == realtime.prompts


async def test_the_scenario_holds_what_it_is_meant_to() -> None:
    """So that two empty conversations are not taken for equal ones."""
    outcome = await play(RealtimeClient)
    assert [said for said, _ in outcome.replies] == [
        "Hello there. Nice to meet you.",
        "Let me look. It is sunny in Paris.",
        "greeting",
        "Hello there. Nice to meet you.",
    ]
    assert [bool(n_bytes) for _, n_bytes in outcome.replies] == [True, True, False, True]
    kinds = [kind for kind, _ in outcome.items]
    assert kinds == ["user", "assistant", "user", "assistant", "call", "result", "assistant", "user", "assistant", "user", "assistant"]
    stopped = outcome.items[8][1]
    assert LONG.startswith(stopped)
    assert 0 < len(stopped) < 60
    assert len(outcome.prompts) == len([step for step in SCENARIO if step.does in ("ask", "tool", "aside", "stop")]) + 1
