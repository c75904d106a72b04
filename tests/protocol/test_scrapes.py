"""Scrapers that ask and never read, or go away in the middle: conversations go on, and so do the counts."""

from __future__ import annotations

import re
import socket
import urllib.request

import pytest

from tests.protocol.peer import peer
from tests.running import Running, gateway


def completed(running: Running) -> float:
    """Turns so far, as an honest scrape finds them."""
    with urllib.request.urlopen(f"{running.http_url}/metrics", timeout=30) as response:
        found = re.search(r'^stretto_turns_total\{status="completed"\} (\S+)', response.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


@pytest.mark.may_block  # starts a gateway
async def test_scrapers_that_hang_or_vanish_hold_up_nobody_and_lose_no_count() -> None:
    with gateway() as running:
        asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        hanging = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(20)]
        for scraper in hanging:
            scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            scraper.sendall(asked)
        hanging[0].close()
        async with peer(running.voice_url, start={"output": "text"}) as client:
            for turn in (1, 2):
                await client.send(type="text", text="Hello.")
                await client.until("turn.done", turn=turn)
        assert completed(running) == 2, "the scrape after the outage has all of it"
        for scraper in hanging:
            scraper.close()
