"""Keeping a conversation's prompt in the engine's prefix cache: one token behind it, when nothing was asked for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from engine.api import EngineError
from engine.warm_up import warm
from gateway.turn import Parts, Plan

PATIENCE_S = 10.0  # gives up quietly: nobody waits for it

log = logging.getLogger("stretto.session.warming")


class Warming:
    """`plan` says what the next turn would be told. `run` needs a task of its own."""

    def __init__(self, parts: Parts, plan: Callable[[], Plan]) -> None:
        self._parts, self._plan = parts, plan
        self._n_asked = 0
        self._asked_s = float("-inf")

    def touch(self) -> None:
        """A request is on its way: the prompt is warm."""
        self._asked_s = self._parts.now()

    def cool(self) -> None:
        """The prompt is another one now: a reply was cut to what was heard."""
        self._asked_s = float("-inf")

    @property
    def is_cold(self) -> bool:
        """Whether it is worth a request: nothing was asked for a while, and the engine is not needed elsewhere."""
        return not self._parts.pressure.is_eased and self._parts.now() - self._asked_s >= self._parts.settings.hearing.warm_up_after_s

    async def run(self) -> None:
        """Ask for one token. A cancel aborts the request."""
        plan, metrics = self._plan(), self._parts.metrics
        self._n_asked += 1
        outcome = "failed"
        try:
            async with asyncio.timeout(PATIENCE_S):
                n_new = await warm(
                    self._parts.model,
                    plan.messages,
                    f"{plan.session_id}-warm{self._n_asked}",
                    tools=plan.tools,
                    kept=plan.kept,
                    cache_salt=plan.cache_salt,
                )
            metrics.tokens.labels("warm_up").inc(n_new)
            outcome = "done"
        except (EngineError, TimeoutError) as error:
            log.debug("warm-up failed", extra={"session_id": plan.session_id, "detail": str(error)})
        metrics.prompts.warm_ups.labels("conversation", outcome).inc()
