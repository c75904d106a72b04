"""Conversations come and go, some in the middle of a word: the gateway is then what it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.load.leak_check import counted_gateway, cycles, is_back, settled, warm

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts in /proc")


@pytest.mark.timeout(120)
async def test_sixty_conversations_leave_no_file_task_or_session_behind() -> None:
    with counted_gateway() as running:
        before = await warm(running)
        await cycles(running, 60)
        after = await settled(running, before)
        assert is_back(before, after), f"before {before}, after {after}"
        assert running.process.poll() is None
