"""The model calls of one turn: one, or several with tool results between them.

Every wait has its deadline: for the first text, between texts, and for the client's tool results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from msgspec import structs

from engine.api import (
    ContextTooLong,
    Delta,
    EngineError,
    EngineStalled,
    FinishReason,
    Generation,
    Kept,
    Message,
    Prompt,
    Sampling,
    ToolCall,
    Usage,
)
from gateway.errors import ToolTimedOut
from gateway.history import without_oldest
from gateway.pacing import put_off
from gateway.turn.gate import Gate
from gateway.turn.plan import Parts, Plan

DRAFT_PRIORITY = 10  # behind every reply that somebody waits for
SAID_AT_ONCE = 128  # characters: 2 ms of rules for speech; a text of 32 KB at once took half a second
MAX_ROUNDS = 8  # calls in a row; the last round gets no tools, so that a model that loves calling must answer


class Asking:
    """Streams deltas to `on_delta`; `on_calls` gets the calls that end a round and returns them as the client knows them."""

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        request_id: str,
        gate: Gate,
        on_delta: Callable[[Delta], None],
        on_calls: Callable[[tuple[ToolCall, ...]], tuple[ToolCall, ...]],
        on_returned: Callable[[], None],
    ) -> None:
        self._used, self._using = Usage(), Usage()  # by the rounds before, and by the current one so far
        self.finish: FinishReason = "stop"
        self.request_id = request_id
        self._plan, self._parts, self._gate = plan, parts, gate
        self._on_delta, self._on_calls, self._on_returned = on_delta, on_calls, on_returned
        self.has_called = False
        self.n_read = 0  # real tokens of the turn's first prompt; 0 while nobody has said
        self.is_too_long = False  # the prompt, for the model's context
        self._prompt: Prompt | None = None
        self._deltas: list[Delta] = []
        self._round_from = 0  # index of the current round's first delta
        self._calls: tuple[ToolCall, ...] = ()
        self._results: dict[str, str] = {}
        self._returned = asyncio.Event()

    async def run(self) -> None:
        """Until the model has answered. Raises `EngineError`, `ToolTimedOut`; a cancel aborts the request."""
        messages = self._plan.messages
        for n_left in range(MAX_ROUNDS, -1, -1):
            self._used, self._using = self.usage, Usage()
            self._round_from = len(self._deltas)
            self._calls = ()
            messages, calls = await self._ask_what_fits(messages, with_tools=n_left > 0)
            if not calls:
                return
            said = "".join(delta.text for delta in self._deltas[self._round_from :])
            self._results.clear()
            await self._gate.passed()  # the tools of a draft wait for its commit
            self._calls = self._on_calls(calls)
            self.has_called = True
            if self._plan.tool_flow == "next_turn":
                return
            await self._wait_for_results()
            asked = Message(role="assistant", text=said, tool_calls=self._calls)
            answers = (Message(role="tool", text=self._results[call.call_id], call_id=call.call_id) for call in self._calls)
            messages = (*messages, asked, *answers)
            self._on_returned()

    def begin_with(self, text: str) -> Delta:
        """The reply begins with words of ours; no word of the model yet."""
        self._deltas.append(Delta(text=text))
        return self._deltas[-1]

    async def say(self, text: str) -> None:
        """Take the text as if the model had written it, a piece at a time: between two of them the loop is everybody's."""
        for at in range(0, len(text), SAID_AT_ONCE):
            self._take(Delta(text=text[at : at + SAID_AT_ONCE]))
            await asyncio.sleep(0)

    def take_result(self, call_id: str, output: str) -> None:
        """A tool has returned."""
        self._results[call_id] = output
        if self.has_results:
            self._returned.set()

    @property
    def has_results(self) -> bool:
        """Whether nothing is waited for any more."""
        return len(self._results) >= len(self._calls)

    @property
    def n_tokens(self) -> int:
        """Tokens the model has made so far."""
        return sum(delta.n_tokens for delta in self._deltas)

    @property
    def usage(self) -> Usage:
        """Real counts over all rounds, as far as they are known: of a request that was aborted, what was read and what came of it."""
        n_made = sum(delta.n_tokens for delta in self._deltas[self._round_from :])
        return _added(self._used, structs.replace(self._using, output_tokens=max(self._using.output_tokens, n_made)))

    def raw_text(self) -> str:
        """Everything the model wrote, over all rounds."""
        return "".join(delta.text for delta in self._deltas)

    def kept_ids(self, raw_end: int) -> Kept | None:
        """Token ids of prompt and reply up to `raw_end` (whole deltas), for the next prompt's prefix.

        None after a tool call: its tokens have no text of their own.
        """
        if self._prompt is None or not self._prompt.ids or self._calls:
            return None
        end = sum(len(delta.text) for delta in self._deltas[: self._round_from])
        if raw_end < end:
            return None
        ids, text = list(self._prompt.ids), self._prompt.text
        for delta in self._deltas[self._round_from :]:
            end += len(delta.text)
            if end > raw_end or (delta.text and not delta.ids):
                break
            ids.extend(delta.ids)
            text += delta.text
        return Kept(ids=tuple(ids), text=text)

    async def _ask_what_fits(self, messages: tuple[Message, ...], *, with_tools: bool) -> tuple[tuple[Message, ...], tuple[ToolCall, ...]]:
        """One request, and again with the older half left out while the model's context is too short; what was asked, and its calls."""
        while True:
            try:
                return messages, await self._ask(messages, with_tools=with_tools)
            except ContextTooLong:
                self.is_too_long = True
                shorter = without_oldest(messages) if self._plan.has_floor else None
                if shorter is None:
                    raise
                messages = shorter

    async def _ask(self, messages: tuple[Message, ...], *, with_tools: bool) -> tuple[ToolCall, ...]:
        """One request; the calls of tools that were offered."""
        tools = self._plan.tools if with_tools else ()
        plan, turn = self._plan, self._parts.settings.turn
        loop = asyncio.get_running_loop()
        sampling = Sampling(max_tokens=plan.max_tokens, temperature=plan.temperature, top_p=turn.top_p)
        kept = plan.kept if self._prompt is None else Kept(ids=self._prompt.ids, text=self._prompt.text)
        calls: list[ToolCall] = []
        wait_s = turn.first_delta_s
        is_draft = self._gate.is_draft
        self._parts.headroom.count(is_draft=is_draft, by=1)
        if not is_draft:
            self._parts.pressure.asked(self.request_id, self._parts.now())
        try:
            async with asyncio.timeout(wait_s) as deadline:
                self._prompt = await self._parts.model.render(messages, tools, kept)
                priority = DRAFT_PRIORITY if is_draft else 0
                generation = Generation(
                    request_id=self.request_id, prompt=self._prompt, sampling=sampling, priority=priority, cache_salt=plan.cache_salt
                )
                async with aclosing(self._parts.model.generate(generation)) as deltas:
                    async for delta in deltas:
                        self._parts.pressure.answered(self.request_id, self._parts.now())
                        wait_s = turn.next_delta_s
                        if (later := put_off(deadline.when(), loop.time(), wait_s)) is not None:
                            deadline.reschedule(later)
                        self._take(delta)
                        calls.extend(delta.tool_calls if tools else ())
        except TimeoutError as error:
            raise EngineStalled(f"no text for {wait_s} s") from error
        finally:
            self._parts.headroom.count(is_draft=is_draft, by=-1)
            self._parts.pressure.gave_up(self.request_id)
            self._parts.model.cancel(self.request_id)
        if not calls and not any(delta.text.strip() for delta in self._deltas[self._round_from :]):
            raise EngineError("the model ended its reply without a word")
        return tuple(calls)

    def _take(self, delta: Delta) -> None:
        self._deltas.append(delta)
        if delta.finish is not None:
            self.finish = delta.finish
        if delta.usage is not None:
            self._using = delta.usage
            self.n_read = self.n_read or delta.usage.prompt_tokens
        self._on_delta(delta)

    async def _wait_for_results(self) -> None:
        wait_s = self._parts.settings.turn.tool_result_s
        try:
            async with asyncio.timeout(wait_s):
                while not self.has_results:
                    self._returned.clear()
                    await self._returned.wait()
        except TimeoutError as error:
            missing = [call.name for call in self._calls if call.call_id not in self._results]
            raise ToolTimedOut(f"No tool.result for {', '.join(missing)[:80]} within {wait_s:.0f} s.") from error


def _added(one: Usage, two: Usage) -> Usage:
    return Usage(
        prompt_tokens=one.prompt_tokens + two.prompt_tokens,
        cached_tokens=one.cached_tokens + two.cached_tokens,
        output_tokens=one.output_tokens + two.output_tokens,
    )
