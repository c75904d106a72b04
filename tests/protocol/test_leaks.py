"""Conversations come and go, some in the middle of a word: the gateway is then what it was before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.load.leak_check import AT_ONCE, RESUME_S, counted_gateway, cycles, is_back, look, settled

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")


@pytest.mark.timeout(120)
async def test_sixty_conversations_leave_no_file_task_or_session_behind() -> None:
    with counted_gateway() as running:
        await cycles(running, AT_ONCE)
        await asyncio.sleep(2 * RESUME_S)
        before = await look(running)
        assert before.n_sessions == 0
        await cycles(running, 60)
        after = await settled(running, before)
        assert is_back(before, after), f"before {before}, after {after}"
        assert running.process.poll() is None
