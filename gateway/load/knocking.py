"""Connections to a house that is full: each must be refused, and soon."""

from __future__ import annotations

import asyncio
import ssl
import time

from gateway.bench.link import open_link
from gateway.client import ConnectFailed
from gateway.load.report import Knocks
from gateway.load.tally import Sketch

APART_S = 0.02  # fifty a second: newcomers, not a flood (which the door's own rate would answer)


async def knock(url: str, key: str | None, tls: ssl.SSLContext | None, n: int) -> Knocks:
    """`n` handshakes, one after the other; one that is let in leaves at once."""
    codes: dict[str, int] = {}
    times, refused = Sketch(steps={}), 0
    for _ in range(n):
        began_s = time.monotonic()
        try:
            link = await open_link(url, key, lambda frame, received_s: None, lambda code, reason: None, tls)
        except ConnectFailed as error:
            times.add((time.monotonic() - began_s) * 1000)
            code = error.code or (f"http_{error.status}" if error.status else "unreachable")
            refused += error.status is not None
        else:
            link.close()
            code = "let in"
        codes[code] = codes.get(code, 0) + 1
        await asyncio.sleep(APART_S)
    return Knocks(n=n, refused=refused, codes=codes, times=times.summary())
