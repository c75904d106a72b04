"""`LanguageModel` over vLLM's own server on a Unix socket: start or find it, talk to it, notice death and hang, start it again.

The server outlives the gateway on purpose: a gateway restart (a deploy, a crash) then costs a second instead of minutes of loading,
and its OpenAI API stays there for others. `stretto serve --stop-engine` ends it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from msgspec import structs

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
from engine.inherited import inherited
from engine.llm.openai import ChatServers, Endpoint, OpenAiModel
from engine.llm.serving.command import command_of, digest_of, request_fields
from engine.llm.serving.process import ServerProcess, stop_others
from engine.llm.vllm.faults import explain
from engine.llm.vllm.tools import parser_name, template_of
from engine.vllm_args.plan import Plan

FOLDER = Path("vllm-serve")  # under the cache folder
_log = logging.getLogger(__name__)
_START_S = 1800.0  # 72B from a slow disk, compiled for the first time
_STOP_S = 15.0
_STOP_HUNG_S = 2.0  # a hung one does not hear SIGTERM
_WATCH_S = 0.5
_PROGRESS_S = 15.0
_BACKOFF_S = (0.5, 2.0, 5.0, 15.0, 30.0)  # before starts after a death; the last one repeats
_CANARIES = 2  # unanswered in a row: one may have met a restart


class ServedVllm:
    """vLLM's server for `plan`, its socket, state and log under `cache_path`. `first_s`, `next_s` as of any chat server."""

    def __init__(
        self,
        plan: Plan,
        cache_path: Path,
        *,
        first_s: float = 8.0,
        next_s: float = 8.0,
        python: str = sys.executable,
        start_s: float = _START_S,
    ) -> None:
        plan = structs.replace(plan, tool_call_parser=parser_name(plan.tool_call_parser, template_of(plan.model)))
        self._plan = plan
        self._environment = {**plan.environment, **inherited()}  # the operator's own variables win
        digest = digest_of(plan, sys.executable, plan.environment)
        self._folder, self._digest = cache_path / FOLDER, digest
        self.process = ServerProcess(self._folder, digest)
        self._command = command_of(plan, sys.executable, self.process.socket)
        self._servers = ChatServers(
            endpoints=(Endpoint(f"unix:{self.process.socket}", "http://localhost/v1", self.process.socket),),
            model=plan.model,
            dialect="vllm",
            first_s=first_s,
            next_s=next_s,
            start_s=start_s,
            extra=request_fields(plan),
        )
        self._chat: OpenAiModel | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._detail = "not started"
        self._heard_s = 0.0  # when a conversation last got a piece of its reply
        self.n_restarts = 0

    @property
    def name(self) -> str:
        """Model and engine."""
        return f"{self._plan.model.rstrip('/').rsplit('/', 1)[-1]} (vLLM's server)"

    @property
    def facts(self) -> Facts:
        """Tools where a parser was named, or the template in the model's folder tells which: the server refuses them otherwise."""
        takes_tools = self._plan.tool_call_parser is not None
        return Facts(takes_tools=takes_tools, keeps_prefixes=self._plan.keeps_prefixes, isolates=True)

    async def start(self) -> None:
        """Find the server or start it; returns when it accepts requests. A cancel leaves it loading. Raises `EngineSetupError`."""
        await self._load()
        self._watcher = asyncio.create_task(self._watch(), name="vllm server watch")  # the adapter is its owner: close() ends it

    async def close(self) -> None:
        """Let go of the server; it stays."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait({watcher})
        chat, self._chat = self._chat, None
        if chat is not None:
            await chat.close()

    def health(self) -> Health:
        """Current state, without waiting."""
        return self._chat.health() if self._chat is not None else Health(ready=False, detail=self._detail)

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """The messages as they are: the server has the template."""
        return Prompt(messages=tuple(messages), tools=tuple(tools))

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """Stream the reply; see `OpenAiModel`."""
        if self._chat is None:
            raise EngineNotReady(f"vLLM's server is not ready: {self._detail}")
        async with aclosing(self._chat.generate(generation)) as deltas:
            async for delta in deltas:
                self._heard_s = time.monotonic()
                yield delta

    def cancel(self, request_id: str) -> None:
        """Close the answer; the server stops generating when it sees that."""
        if self._chat is not None:
            self._chat.cancel(request_id)

    async def _load(self) -> None:
        """From nothing or from a running server to one that answers. Raises `EngineSetupError`."""
        began = time.monotonic()
        try:
            n_stopped = await asyncio.to_thread(stop_others, self._folder, self._digest, _STOP_S)
            is_new = self.process.ensure(self._command, self._environment)
        except OSError as error:
            raise EngineSetupError(f"vLLM's server cannot be started: {error}") from error
        self._detail = "loading the model" if is_new else "found running; waiting for its answer"
        _log.info(
            "vllm server", extra={"is_new": is_new, "pid": self.process.pid, "stopped_others": n_stopped, "log": str(self.process.log)}
        )
        chat = OpenAiModel(self._servers)
        answering = asyncio.create_task(chat.start(), name="vllm server's first answer")  # awaited or canceled below, in every case
        try:
            await self._until_answer(answering, began)
        except BaseException:
            answering.cancel()
            await asyncio.wait({answering})
            await chat.close()
            raise
        self._chat, self._detail = chat, "accepting requests"
        _log.info("vllm server ready", extra={"start_s": round(time.monotonic() - began, 1), "is_new": is_new})

    async def _until_answer(self, answering: asyncio.Task[None], began: float) -> None:
        """Wait for the socket, and meanwhile see whether the process lives. Raises `EngineSetupError`."""
        told_s = began
        while True:
            done, _ = await asyncio.wait({answering}, timeout=_WATCH_S)
            if done:
                answering.result()
                return
            if self.process.pid is None:
                words = self.process.last_words()
                raise EngineSetupError(explain(RuntimeError(_fault_line(words)), self._plan.model) + f"; see {self.process.log}")
            now = time.monotonic()
            if now - told_s >= _PROGRESS_S:
                told_s = now
                _log.info("vllm server still loading", extra={"since_s": round(now - began), "log": str(self.process.log)})

    async def _watch(self) -> None:
        """One server after the other."""
        n_failed = 0
        while True:
            why = await self._until_down()
            self._detail = f"{why}; it is started again"
            _log.error("vllm server went down", extra={"why": why, "log": str(self.process.log)})
            chat, self._chat = self._chat, None
            if chat is not None:
                await chat.close()
            await asyncio.to_thread(self.process.stop, _STOP_HUNG_S)
            await asyncio.sleep(_BACKOFF_S[min(n_failed, len(_BACKOFF_S) - 1)])
            self.n_restarts += 1
            try:
                await self._load()
                n_failed = 0
            except EngineSetupError as error:
                n_failed += 1
                self._detail = str(error)
                _log.error("vllm server restart failed", extra={"why": str(error)})

    async def _until_down(self) -> str:
        """Why the server has to be started again."""
        if self._chat is None:
            return "it did not start"
        n_silent, looked_s = 0, time.monotonic()
        while True:
            await asyncio.sleep(_WATCH_S)
            if self.process.pid is None:
                return "the server died"
            if time.monotonic() - looked_s < self._plan.canary_s:
                continue
            looked_s = time.monotonic()
            is_alive = await self._answers_canary() or self._heard_s >= looked_s  # busy: others are answered meanwhile
            n_silent = 0 if is_alive else n_silent + 1
            looked_s = time.monotonic()
            if n_silent >= _CANARIES:
                return f"the server hung: {n_silent} requests for one token unanswered within {self._plan.hung_s:g} s"

    async def _answers_canary(self) -> bool:
        """Ask for one token, ahead of everyone: /health tells a dead engine, this one tells a hung one."""
        assert self._chat is not None, "watched only while there is one"
        generation = Generation(
            request_id=f"canary-{time.monotonic_ns()}",
            prompt=Prompt(messages=(Message(role="user", text="Hi"),)),
            sampling=Sampling(max_tokens=1, temperature=0.0),
            priority=-1,
        )
        try:
            async with asyncio.timeout(self._plan.hung_s), aclosing(self._chat.generate(generation)) as deltas:
                async for _ in deltas:
                    pass
        except EngineBusy:
            return True  # it says so itself
        except (EngineError, TimeoutError):
            return False
        return True


def _fault_line(words: str) -> str:
    """The line of a log that says most: the last error, else the last line."""
    lines = [line for line in words.splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or ["it ended without a word"])[-1].strip()
