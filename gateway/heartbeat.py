"""Keeps what many conversations begin with in the engine's prefix cache: read at start, after every restart of the engine, and again and
again, because the cache forgets first what was not used for longest.

A beat stands behind everyone: it is put off while more than a few replies are on their way, has the lowest priority, and goes on at the
next quiet moment where it was interrupted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from msgspec import Struct

from engine.api import EngineError, Message
from engine.warm_up import warm
from gateway import auth
from gateway.admission import Admission
from gateway.config import Settings
from gateway.profile import persona_prompts
from gateway.speech.markup import MarkupRules
from gateway.turn import Parts

TICK_S = 0.05
PATIENCE_S = 60.0  # 8,000 tokens of instructions take half of it on two cores

log = logging.getLogger("stretto.heartbeat")


class Beginning(Struct, frozen=True):
    """Instructions that prompts begin with, and whose cache they belong into."""

    instructions: str
    cache_salt: str | None = None


def beginnings(settings: Settings, rules: MarkupRules) -> tuple[Beginning, ...]:
    """The instructions of who asks for nothing, of every persona and of configured templates; for isolated keys, their own."""
    shared = persona_prompts(settings, rules, settings.warm_up.instructions)
    found = [Beginning(text) for text in shared]
    for key in settings.keys.values():
        if (salt := auth.cache_salt(key)) is not None:
            own = [*settings.personas].index(key.persona) + 1 if key.persona else 0
            found.append(Beginning(shared[own], salt))
    return tuple(dict.fromkeys(found))


class Heartbeat:
    """`run` is its task."""

    def __init__(self, parts: Parts, admission: Admission) -> None:
        self._parts, self._admission = parts, admission
        self._settings = parts.settings.warm_up
        self._beginnings = beginnings(parts.settings, parts.rules)
        self._n_asked = 0
        self._is_failing = False

    async def run(self) -> None:
        """Until cancelled."""
        was_ready, beats_at = False, float("inf")
        while True:
            is_ready = self._admission.is_ready
            if is_ready and (not was_ready or self._parts.now() >= beats_at):
                await self._beat(is_first=not was_ready)
                beats_at = self._parts.now() + self._settings.every_s if self._goes_on else float("inf")
            was_ready = is_ready
            await asyncio.sleep(TICK_S)

    @property
    def _goes_on(self) -> bool:
        """Whether there is a cache to keep warm; slots of llama.cpp and strangers' servers are left alone after the start."""
        return self._settings.every_s > 0 and self._parts.model.facts.keeps_prefixes

    async def _beat(self, *, is_first: bool) -> None:
        """Read everything once, everywhere. What fails is counted and passed over: a warm-up never keeps the gateway from serving."""
        n_new = 0
        for beginning, place in self._due():
            while not is_first and (self._parts.pressure.is_eased or self._parts.headroom.n_replies > self._settings.max_replies):
                await asyncio.sleep(TICK_S)
            if not self._admission.is_ready:
                return
            n_new += await self._read(beginning, place)
        log.log(logging.INFO if is_first else logging.DEBUG, "prompts warmed", extra={"n": len(self._beginnings), "new_tokens": n_new})

    def _due(self) -> Iterator[tuple[Beginning, int]]:
        for beginning in self._beginnings:
            for place in range(self._parts.model.facts.places):
                yield beginning, place

    async def _read(self, beginning: Beginning, place: int) -> int:
        """How many tokens were new."""
        metrics = self._parts.metrics
        # The user's words differ; all that stands before them is the same in every conversation.
        messages = (Message(role="system", text=beginning.instructions), Message(role="user", text="Hello."))
        self._n_asked += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                n_new = await warm(self._parts.model, messages, f"warm-{self._n_asked}", cache_salt=beginning.cache_salt, place=place)
        except (EngineError, TimeoutError) as error:
            metrics.prompts.warm_ups.labels("persona", "failed").inc()
            level = logging.DEBUG if self._is_failing else logging.WARNING  # said once, not at every beat
            self._is_failing = True
            log.log(level, "prompt not warmed", extra={"detail": str(error) or "too late", "n_characters": len(beginning.instructions)})
            return 0
        self._is_failing = False
        metrics.prompts.warm_ups.labels("persona", "done").inc()
        metrics.tokens.labels("warm_up").inc(n_new)
        return n_new
