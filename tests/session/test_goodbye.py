"""The client leaves while a reply is thought of: that is no failure of the model."""

from __future__ import annotations

import asyncio

import pytest

from gateway.events import SendText, TurnStarted
from tests.session.stage import stage


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.06])
async def test_a_goodbye_in_mid_turn_is_no_failed_turn(after_s: float, caplog: pytest.LogCaptureFixture) -> None:
    async with stage(["One two three four five six seven."]) as scene:
        scene.send(SendText(text="Count."))
        await scene.until(TurnStarted)
        await asyncio.sleep(after_s)
        scene.session.close()
        await asyncio.sleep(1)
        assert len(scene.sessions) == 0
        assert "language model failed" not in caplog.messages
        failed = scene.parts.metrics.registry.get_sample_value("stretto_turns_total", {"status": "failed"})
        assert not failed
