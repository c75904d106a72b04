"""The connection that serves a session now."""

from __future__ import annotations

import asyncio

from gateway.errors import StrettoError


class Attachment:
    """`ended` tells the connection to close, with the reason. `traceparent`: the header of its handshake, "" without one."""

    def __init__(self) -> None:
        self.traceparent = ""
        self.ended: asyncio.Future[StrettoError] = asyncio.get_running_loop().create_future()

    def end(self, reason: StrettoError) -> None:
        """Ask the connection to close; the first reason wins."""
        if not self.ended.done():
            self.ended.set_result(reason)
