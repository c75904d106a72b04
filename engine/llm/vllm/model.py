"""`LanguageModel` over an embedded vLLM: start, stream, cancel, notice death and hang, start again.

One owner task holds everything: it builds the engine, watches it, and starts it anew with a growing pause. Open streams of
a dead engine end with `EngineNotReady`; sessions live on and their next turn finds the new engine (with an empty cache).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

from engine.api import (
    Delta,
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    Facts,
    Generation,
    Health,
    Kept,
    Message,
    Prompt,
    Sampling,
)
from engine.llm.vllm import embedded, tools
from engine.llm.vllm.deltas import DeltaReader
from engine.llm.vllm.embedded import Embedded, StepClock
from engine.llm.vllm.faults import translate
from engine.llm.vllm.rendering import PromptRenderer
from engine.llm.vllm.requests import OpenRequest, OpenRequests, reap
from engine.llm.vllm.watch import WatchLimits, judge
from engine.vllm_args.plan import Plan

_log = logging.getLogger(__name__)
T = TypeVar("T")
Build = Callable[[Plan, StepClock], Embedded]
LoadTools = Callable[[str | None, Any], tools.MakeReader | None]  # Any: the tokenizer
LoadTokenizer = Callable[[str, Mapping[str, str]], Any]  # Any: transformers.PreTrainedTokenizerFast
State = Literal["new", "starting", "ready", "restarting", "failed", "closed"]
_INLINE_CHARACTERS = 6000  # tokenizing so much takes about 3 ms; longer prompts go to a thread, so that the loop breathes
_WATCH_S = 0.5
_BACKOFF_S = (0.5, 2.0, 5.0, 15.0, 30.0)  # pauses before starts after a death; the last one repeats
_PROGRESS_S = 15.0  # between two words on a start that takes minutes
_CLOSE_S = 20.0  # vLLM ends its core within five seconds, or it is killed


class VllmModel:
    """vLLM in this process's care. One per process: vLLM's metrics live in the default Prometheus registry."""

    def __init__(
        self,
        plan: Plan,
        build: Build = embedded.build,
        load_tokenizer: LoadTokenizer = embedded.load_tokenizer,
        load_tools: LoadTools = tools.for_model,
    ) -> None:
        self._plan = plan
        self._load_tools = load_tools
        self._build = build
        self._load_tokenizer = load_tokenizer
        self._limits = WatchLimits(canary_s=plan.canary_s, hung_s=plan.hung_s)
        self._state: State = "new"
        self._detail = "not started"
        self._engine: Embedded | None = None
        self._renderer: PromptRenderer | None = None
        self._make_tool_reader: tools.MakeReader | None = None
        self._requests = OpenRequests()
        self._steps = StepClock()
        self._owner: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._started: asyncio.Future[None] | None = None
        self._closing = asyncio.Event()
        self._went_down = asyncio.Event()
        self.n_restarts = 0

    @property
    def name(self) -> str:
        """Model and engine."""
        return f"{self._plan.model.rstrip('/').rsplit('/', 1)[-1]} (vLLM)"

    @property
    def facts(self) -> Facts:
        """Tools where one of vLLM's parsers reads this model's calls; else they would be spoken."""
        return Facts(takes_tools=self._make_tool_reader is not None, keeps_prefixes=self._plan.keeps_prefixes, isolates=True)

    @property
    def n_unfinished(self) -> int:
        """Requests that vLLM still holds; 0 when none is running or leaked."""
        return self._engine.n_unfinished if self._engine is not None else 0

    @property
    def n_rendered_anew(self) -> int:
        """Prompts that could not use all their kept ids."""
        return self._renderer.n_anew if self._renderer is not None else 0

    async def start(self) -> None:
        """Load; returns when a first token was made. A cancel stops the engine again. Raises `EngineSetupError`."""
        if self._owner is not None:
            raise EngineSetupError("the engine has been started already")
        self._started = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(), name="vllm-owner")  # the adapter is its owner: close() waits for it
        try:
            await asyncio.shield(self._started)
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop within seconds; open requests end with `EngineNotReady`, no process stays."""
        self._closing.set()
        self._went_down.set()
        owner = self._owner
        if owner is None or owner.done():
            self._state = "closed"
            return
        if self._engine is None:
            await asyncio.to_thread(embedded.end_core_processes)  # a start in its thread cannot be cancelled, only robbed of its process
        done, _ = await asyncio.wait({owner}, timeout=_CLOSE_S)
        if not done:
            _log.error("vllm did not stop in time", extra={"close_s": _CLOSE_S})
            await asyncio.to_thread(embedded.end_core_processes)
            owner.cancel()
            await asyncio.wait({owner})
        self._state = "closed"

    def health(self) -> Health:
        """Current state, without waiting."""
        return Health(ready=self._state == "ready", detail=self._detail)

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """Prompt for `messages`; works while the engine restarts. Raises `ContextTooLong`, `EngineNotReady`, `EngineError`."""
        if self._renderer is None:
            raise EngineNotReady(f"vLLM is not ready: {self._detail}")
        if sum(len(message.text) for message in messages) <= _INLINE_CHARACTERS:
            return self._renderer.render(messages, tools, kept)
        return await asyncio.to_thread(self._renderer.render, messages, tools, kept)

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """Stream the reply; the first delta is the first token, even if its text is not whole yet."""
        engine, renderer = self._engine, self._renderer
        if self._state != "ready" or engine is None or renderer is None:
            raise EngineNotReady(f"vLLM is not ready: {self._detail}")
        if len(self._requests) >= self._plan.open_requests:
            raise EngineBusy(f"{len(self._requests)} requests are open, {self._plan.open_requests} are allowed")
        if not generation.prompt.ids:
            raise EngineError("the prompt has no token ids; render it with this engine")
        request = self._requests.add(generation.request_id)
        reader = DeltaReader(len(generation.prompt.ids), renderer.ends_inside_character, renderer.control_ids)
        offered = generation.prompt.tools
        calls = self._make_tool_reader(offered) if offered and self._make_tool_reader is not None else None
        try:
            async with aclosing(self._outputs(engine, generation)) as outputs:
                async for output in outputs:
                    request.has_finished = output.finished
                    delta = reader.read(output)
                    if delta.finish == "cancelled" and not request.is_cancelled:
                        raise EngineNotReady("vLLM stopped this request: the engine is shutting down")
                    yield delta if calls is None else calls.read(delta)
                    if output.finished:
                        return
            raise EngineError("vLLM ended the stream without a last output")
        finally:
            self._requests.end(request)
            if not request.has_finished:
                self._abort(engine, request)

    async def _outputs(self, engine: Embedded, generation: Generation) -> AsyncGenerator[Any, None]:
        """vLLM's outputs; its errors as ours."""
        room = engine.context_tokens - len(generation.prompt.ids)
        try:
            async with aclosing(engine.stream(generation, max(1, min(generation.sampling.max_tokens, room)))) as outputs:
                async for output in outputs:
                    yield output
        except EngineError:
            raise
        except Exception as error:
            ours = translate(error)
            if isinstance(ours, EngineNotReady) and self._state == "ready":
                self._state, self._detail = "restarting", str(ours)
                self._went_down.set()
            raise ours from error

    def cancel(self, request_id: str) -> None:
        """Abort at once, without waiting; the stream ends with finish `cancelled`."""
        request = self._requests.find(request_id)
        if request is not None and not request.is_cancelled:
            request.is_cancelled = True
            if self._engine is not None:
                self._abort(self._engine, request)

    def _abort(self, engine: Embedded, request: OpenRequest) -> None:
        if self._group is not None:
            self._group.create_task(reap(engine.abort, request), name=f"vllm-reap-{request.request_id}")

    async def _own(self) -> None:
        """The owner: one engine after the other until closed."""
        assert self._started is not None, "start() makes the future"
        try:
            await self._run()
        except EngineSetupError as error:
            self._settle(error)
        except Exception as error:  # the owner's own bug must not leave start() waiting
            _log.exception("vllm owner failed")
            self._state, self._detail = "failed", f"internal error: {error}"
            self._settle(EngineSetupError(self._detail))
        finally:
            self._group = None
            if not self._started.done():
                self._settle(EngineSetupError("closed while starting"))

    def _settle(self, error: EngineSetupError | None) -> None:
        if self._started is None or self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)

    async def _run(self) -> None:
        self._state, self._detail = "starting", "loading the model"
        n_failed = 0
        while not self._closing.is_set():
            try:
                await self._one_life()
                n_failed = 0
            except EngineSetupError as error:
                if self._started is not None and not self._started.done():
                    self._state, self._detail = "failed", str(error)
                    raise
                n_failed += 1
                _log.exception("vllm restart failed")
            if self._closing.is_set():
                return
            self._state = "restarting"
            await self._pause(_BACKOFF_S[min(n_failed, len(_BACKOFF_S) - 1)])
            self.n_restarts += 1

    async def _pause(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    async def _one_life(self) -> None:
        """From build to stop of one engine. Returns when it was closed, died or hung."""
        began = time.monotonic()
        renderer = self._renderer
        if renderer is None:
            renderer = await self._phase("loading the tokenizer", self._read_model)
        engine = await self._phase("loading the model", lambda: self._build(self._plan, self._steps))
        try:
            renderer.context_tokens = engine.context_tokens
            if self._closing.is_set():
                return
            built = time.monotonic()
            self._detail = "making a first token"
            await self._first_token(engine)
            self._renderer = renderer
            self._went_down.clear()
            async with asyncio.TaskGroup() as group:
                self._group, self._engine = group, engine
                self._state, self._detail = "ready", "accepting requests"
                _log.info(
                    "vllm ready", extra={"start_s": round(time.monotonic() - began, 1), "first_token_s": round(time.monotonic() - built, 2)}
                )
                self._settle(None)
                await self._watch(engine)
                if self._closing.is_set():
                    self._state, self._detail = "closed", "closed"
                elif self._state == "ready":
                    self._state = "restarting"
                await self._end_streams(engine)
        finally:
            self._engine = self._group = None
            await asyncio.to_thread(engine.stop)

    def _read_model(self) -> PromptRenderer:
        """What stands in the model's folder beside its weights: a base model, or a wrong parser, is told before they are loaded."""
        tokenizer = self._load_tokenizer(self._plan.model, self._plan.environment)
        renderer = PromptRenderer(tokenizer, 1, self._plan.template)
        self._make_tool_reader = self._load_tools(self._plan.tool_call_parser, tokenizer)
        return renderer

    async def _phase(self, name: str, work: Callable[[], T]) -> T:
        """Do a part of the start in a thread; whoever waits is told now and then how long it has taken."""
        began, self._detail = time.monotonic(), name
        working = asyncio.create_task(asyncio.to_thread(work), name=f"vllm: {name}")
        try:
            while not (await asyncio.wait({working}, timeout=_PROGRESS_S))[0]:
                since_s = round(time.monotonic() - began)
                self._detail = f"{name}, {since_s} s so far"
                _log.info("vllm still starting", extra={"phase": name, "since_s": since_s})
        finally:
            working.cancel()  # of what is done it is none; a thread goes on to its end
        _log.info("vllm start phase", extra={"phase": name, "s": round(time.monotonic() - began, 1)})
        return working.result()

    async def _first_token(self, engine: Embedded) -> None:
        """The first request warms kernels and caches and proves that the engine answers. Raises `EngineSetupError`."""
        try:
            async with asyncio.timeout(60.0 + self._limits.hung_s):
                await self._canary(engine)
        except (EngineError, TimeoutError) as error:
            raise EngineSetupError(f"vLLM started but made no token: {error}") from error

    async def _canary(self, engine: Embedded) -> None:
        generation = Generation(
            request_id=f"canary-{time.monotonic_ns()}",
            prompt=Prompt(messages=(), ids=(1, 1)),
            sampling=Sampling(max_tokens=1, temperature=0.0),
        )
        async with aclosing(self._outputs(engine, generation)) as outputs:
            async for _ in outputs:
                pass

    async def _watch(self, engine: Embedded) -> None:
        """Return when the engine is dead, hung, or to be closed."""
        canary: asyncio.Task[None] | None = None
        canary_since_s = 0.0
        while self._state == "ready" and not self._closing.is_set() and not engine.is_dead:
            if canary is not None and canary.done():
                canary = None
            verdict = judge(self._limits, time.monotonic(), self._steps.last_s, canary_since_s if canary is not None else None)
            if verdict == "hung":
                self._detail = f"hung: no step for {self._limits.hung_s:.0f} s with a request waiting; it is started again"
                break
            if verdict == "needs_canary" and self._group is not None:
                canary_since_s = time.monotonic()
                canary = self._group.create_task(self._quiet_canary(engine), name="vllm-canary")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await self._went_down.wait()
            self._went_down.clear()
        if canary is not None:
            canary.cancel()
        if not self._closing.is_set():
            if not self._detail.startswith("hung"):
                self._detail = "the engine core died and is started again"
            _log.error("vllm went down", extra={"detail": self._detail, "open_requests": len(self._requests)})

    async def _quiet_canary(self, engine: Embedded) -> None:
        with contextlib.suppress(EngineError):  # a dead engine; the watch sees that itself
            await self._canary(engine)
            self._steps.record()

    async def _end_streams(self, engine: Embedded) -> None:
        """Let every open stream end before the engine goes: vLLM forgets its readers when it shuts down."""
        for request in self._requests:
            await engine.abort(request.request_id)
        waiting = [asyncio.ensure_future(request.ended.wait()) for request in self._requests]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=2.0)
            for one in late:
                one.cancel()
        engine.quiesce()
