"""What is done for a conversation between its turns, so that its next one need not wait for it.

The oldest part of a history that has outgrown its budget is left out, summed up first where that is wanted; and the prompt is read into the
engine's cache. All of it stands behind everyone's replies, and a turn that begins ends it: what was read so far it finds in the cache,
and the next pause has time for another summary.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from engine.api import EngineError, FinishReason, Generation, Sampling, Usage
from engine.warm_up import PRIORITY
from gateway.history import Item, without_reasoning
from gateway.history.summary import asking, read, told
from gateway.session.items import caption
from gateway.session.planning import budget
from gateway.session.warming import Warming
from gateway.turn import Parts
from gateway.turn_state import State

if TYPE_CHECKING:
    from gateway.session.session import Session

log = logging.getLogger("stretto.session.upkeep")


class Upkeep:
    """Told of turns that begin and end, and of speech; `run` owns its tasks, and nothing is done without it.

    `is_spoken`: somebody may speak, so there is time to warm a prompt that was cut; a typed interruption brings the next request along.
    """

    def __init__(self, session: Session, parts: Parts, *, is_spoken: bool) -> None:
        self._session, self._parts, self._is_spoken = session, parts, is_spoken
        self._warming = Warming(parts, lambda: session.plan(session.profile))
        self._tasks: asyncio.TaskGroup | None = None
        self._summing: asyncio.Task[None] | None = None
        self._working: asyncio.Task[None] | None = None  # the latest; others are over or about to be

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                await asyncio.Event().wait()
            finally:
                self._tasks = None

    def warm_up(self) -> None:
        """Put the conversation into the engine's prefix cache, if nothing was asked for a while."""
        if self._tasks is not None and self._warming.is_cold:
            self._warming.touch()
            self._working = self._tasks.create_task(self._warming.run(), name=f"{self._session.session_id} warm-up")

    def turn_began(self) -> None:
        """A request is on its way; what was read ahead so far it finds."""
        self._warming.touch()
        if self._working is not None:
            self._working.cancel()

    def turn_ended(self, *, was_cut: bool) -> None:
        """The conversation rests, unless another turn is on its way. `was_cut`: to what was heard, so its prompt is another one now."""
        if was_cut:
            self._warming.cool()
        if self._session.state is not State.LISTENING or self._tasks is None or self._is_summing:
            return
        outgrown = self._outgrown()
        if outgrown and self._parts.settings.history.summarize:
            self._working = self._summing = self._tasks.create_task(self._sum_up(outgrown), name=f"{self._session.session_id} summary")
        elif outgrown:
            self._leave_out(outgrown, None)
        if outgrown or (was_cut and self._is_spoken):
            self.warm_up()

    def _outgrown(self) -> list[Item]:
        profile, history = self._session.profile, self._session.history
        return history.outgrown(profile.prompt(self._parts.rules), budget(self._parts.settings), profile.offered_tools())

    def _leave_out(self, outgrown: Sequence[Item], summary: str | None) -> None:
        """They are told no more; the next prompt is another one."""
        history = self._session.history
        if summary is not None and not all(history.has(item.item_id) for item in outgrown):
            summary = None  # the client deleted something of it meanwhile
        history.leave_out(outgrown, None if summary is None else told(summary, self._session.profile.language))
        self._parts.metrics.prompts.trims.labels("dropped" if summary is None else "summarized").inc()
        self._warming.cool()

    @property
    def _is_summing(self) -> bool:
        return self._summing is not None and not self._summing.done()

    async def _sum_up(self, outgrown: Sequence[Item]) -> None:
        """Leave the items out with a summary, or without where that fails. A cancel aborts the request and leaves all as it is."""
        request_id = f"{self._session.session_id}-summary"
        summary = None
        try:
            async with asyncio.timeout(self._parts.settings.history.summary_s):
                summary = await self._summary(outgrown, request_id)
        except (EngineError, TimeoutError) as error:
            log.info("no summary", extra={"session_id": self._session.session_id, "detail": str(error) or "too late"})
        finally:
            self._parts.model.cancel(request_id)
        self._leave_out(outgrown, summary)
        self.warm_up()

    async def _summary(self, outgrown: Sequence[Item], request_id: str) -> str | None:
        """What the model makes of the items. Raises `EngineError`."""
        profile, history, model = self._session.profile, self._session.history, self._parts.model
        max_tokens = self._parts.settings.history.summary_tokens
        messages = asking(history.beginning(profile.prompt(self._parts.rules), outgrown), profile.language, max_tokens)
        prompt = await model.render(messages, profile.offered_tools(), history.kept)
        generation = Generation(
            request_id=request_id,
            prompt=prompt,
            sampling=Sampling(max_tokens=max_tokens, temperature=0.0),
            priority=PRIORITY,
            cache_salt=profile.rights.cache_salt,
        )
        text, n_output, usage = "", 0, Usage()
        finish: FinishReason = "cancelled"
        try:
            async with aclosing(model.generate(generation)) as deltas:
                async for delta in deltas:
                    text += delta.text
                    n_output += delta.n_tokens
                    usage, finish = delta.usage or usage, delta.finish or finish
        finally:
            self._parts.metrics.tokens.labels("summary").inc(usage.prompt_tokens - usage.cached_tokens + n_output)
        rules = self._parts.rules
        return read(caption(without_reasoning(text, starts_inside=rules.starts_in_reasoning), rules), finish)
