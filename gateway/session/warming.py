"""Keeping a conversation's prompt in the engine's prefix cache: one token behind it, when nothing was asked for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.api import EngineError, Generation, Sampling
from gateway.turn import Parts, Plan

PRIORITY = 20  # behind replies and drafts
PATIENCE_S = 10.0  # gives up quietly: nobody waits for it

log = logging.getLogger("stretto.session.warming")


class Warming:
    """`plan` says what the next turn would be told. `run` needs a task of its own."""

    def __init__(self, session_id: str, parts: Parts, plan: Callable[[], Plan]) -> None:
        self._request_id = f"{session_id}-warm-up"
        self._parts, self._plan = parts, plan
        self._asked_s = float("-inf")

    def touch(self) -> None:
        """A request is on its way: the prompt is warm."""
        self._asked_s = self._parts.now()

    def cool(self) -> None:
        """The prompt is another one now: a reply was cut to what was heard."""
        self._asked_s = float("-inf")

    @property
    def is_cold(self) -> bool:
        """Whether it is worth a request."""
        return self._parts.now() - self._asked_s >= self._parts.settings.hearing.warm_up_after_s

    async def run(self) -> None:
        """Ask for one token. A cancel aborts the request."""
        plan, model = self._plan(), self._parts.model
        try:
            async with asyncio.timeout(PATIENCE_S):
                prompt = await model.render(plan.messages, plan.tools, plan.kept)
                wanted = Generation(
                    request_id=self._request_id,
                    prompt=prompt,
                    sampling=Sampling(max_tokens=1),
                    priority=PRIORITY,
                    cache_salt=plan.cache_salt,
                )
                async for _ in model.generate(wanted):
                    pass
        except (EngineError, TimeoutError) as error:
            log.debug("warm-up failed", extra={"request_id": self._request_id, "detail": str(error)})
        finally:
            model.cancel(self._request_id)
