"""The open requests of one engine, and the reaper that makes sure that an abandoned one is aborted in vLLM.

The trap (vLLM #57061, 0.25 to 0.33): a request that is cancelled while vLLM is still adding it is unknown to an abort made at
that moment and then runs to its last token. So an abort is repeated until the stream has ended, and a stream that ended
without its last output is always aborted once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from engine.api import EngineError

_AGAIN_S = (0.005, 0.02, 0.1, 0.5, 2.0)  # adding a request takes well under a millisecond; the tail is for a starved loop


class OpenRequest:
    """One request from our side. `is_cancelled`: somebody called `cancel`. `has_finished`: vLLM gave its last output."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.is_cancelled = False
        self.has_finished = False
        self.ended = asyncio.Event()


class OpenRequests:
    """All open requests, at most `limit`. Full means refuse."""

    def __init__(self) -> None:
        self._open: dict[str, OpenRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[OpenRequest]:
        return iter(list(self._open.values()))

    def add(self, request_id: str) -> OpenRequest:
        """Register. Raises `EngineError` for an id in use."""
        if request_id in self._open:
            raise EngineError(f"the request id {request_id!r} is in use")
        request = self._open[request_id] = OpenRequest(request_id)
        return request

    def find(self, request_id: str) -> OpenRequest | None:
        """The open request, None for an unknown or ended one."""
        return self._open.get(request_id)

    def end(self, request: OpenRequest) -> None:
        """The stream is over, however."""
        self._open.pop(request.request_id, None)
        request.ended.set()


async def reap(abort: Callable[[str], Awaitable[None]], request: OpenRequest) -> None:
    """Abort, and again until the stream has ended. Gives up quietly after about three seconds (its reader is asleep then)."""
    await abort(request.request_id)
    for again_s in _AGAIN_S:
        if request.ended.is_set():
            return
        try:
            async with asyncio.timeout(again_s):
                await request.ended.wait()
        except TimeoutError:
            await abort(request.request_id)
