"""`LanguageModel` over chat servers: whom to ask, one clean retry before the first piece, a watch on those that are down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from engine.api import (
    Delta,
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    EngineStalled,
    Facts,
    Generation,
    Health,
    Kept,
    Message,
    Prompt,
)
from engine.llm.openai.asking import body_of
from engine.llm.openai.connection import CannotConnect, Connection, Request, Stopped
from engine.llm.openai.endpoints import Endpoint, Standing, session_of
from engine.llm.openai.settings import ChatServers

_log = logging.getLogger(__name__)
_WATCH_S = 0.5
_ASK_AGAIN_S = 15.0  # how old a good answer may be before an idle server is asked whether it still lives
_SENT = 2  # attempts that reached a server: the first, and one retry


class OpenAiModel:
    """Streams replies from the servers in `settings`. An empty `settings.model` takes what the first server offers."""

    def __init__(self, settings: ChatServers) -> None:
        self._settings = settings
        self._model = settings.model
        self._standing = Standing(settings.endpoints)
        self._connections: dict[Endpoint, Connection] = {}
        self._open: dict[str, Request] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._asked_s: dict[Endpoint, float] = {}

    @property
    def name(self) -> str:
        """Model and servers."""
        return f"{self._model or 'what is served'} at {', '.join(endpoint.name for endpoint in self._settings.endpoints)}"

    @property
    def facts(self) -> Facts:
        """Tools as far as anyone knows: the server says otherwise when it is asked."""
        is_vllm = self._settings.dialect == "vllm"
        return Facts(keeps_prefixes=is_vllm, isolates=is_vllm, places=len(self._settings.endpoints))

    @property
    def n_open(self) -> int:
        """Requests under way."""
        return len(self._open)

    async def start(self) -> None:
        """Returns when a server answers. Raises `EngineSetupError`: none does, or it refuses the key."""
        self._connections = {endpoint: Connection(endpoint, self._settings) for endpoint in self._settings.endpoints}
        try:
            await self._until_one_answers()
        except BaseException:
            await self.close()
            raise
        self._watcher = asyncio.create_task(self._watch(), name="llm servers watch")  # the adapter is its owner: close() ends it

    async def close(self) -> None:
        """Open requests end with `EngineNotReady`."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            await asyncio.wait({watcher})
        connections, self._connections = self._connections, {}
        for request in list(self._open.values()):
            request.cancel()
        async with asyncio.TaskGroup() as ends:
            for endpoint, connection in connections.items():
                ends.create_task(connection.close(), name=f"close {endpoint.name}")

    def health(self) -> Health:
        """Ready while one server answers."""
        if not self._connections:
            return Health(ready=False, detail="not started")
        return Health(ready=self._standing.is_any_up, detail=self._standing.words())

    async def render(self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], kept: Kept | None) -> Prompt:
        """The messages as they are: the server has the template, and finds its cached prefix by itself."""
        return Prompt(messages=tuple(messages), tools=tuple(tools))

    def cancel(self, request_id: str) -> None:
        """Close the answer; the server stops generating when it sees that."""
        if (request := self._open.get(request_id)) is not None:
            request.cancel()

    async def generate(self, generation: Generation) -> AsyncGenerator[Delta, None]:
        """Stream the reply; its first delta decides: before it a failure is tried again once, after it never."""
        if not self._connections:
            raise EngineNotReady("the chat servers' connections are closed")
        if generation.request_id in self._open:
            raise EngineError(f"the request id {generation.request_id!r} is in use")
        request = self._open[generation.request_id] = Request(generation.request_id)
        try:
            async with aclosing(self._attempts(generation, request)) as deltas:
                async for delta in deltas:
                    yield delta
        except Stopped:
            if not self._connections:
                raise EngineNotReady("the gateway is shutting down") from None
            yield Delta(text="", finish="cancelled")
        finally:
            del self._open[generation.request_id]

    async def _attempts(self, generation: Generation, request: Request) -> AsyncGenerator[Delta, None]:
        body = body_of(generation, self._model, self._settings.dialect, self._settings.extra)
        failure: EngineError | None = None
        n_sent = 0
        for connection in self._candidates(generation):
            if n_sent == _SENT or (failure is not None and not _may_retry(failure, is_alone=len(self._connections) == 1)):
                break
            has_begun = False
            try:
                async with aclosing(connection.stream(body, request)) as deltas:
                    async for delta in deltas:
                        has_begun = True
                        yield delta
            except EngineError as error:
                self._note(connection.endpoint, error)
                if has_begun:
                    raise
                failure = error
                n_sent += not isinstance(error, CannotConnect)
            else:
                self._answered(connection.endpoint)
                return
        assert failure is not None, "there is at least one candidate"
        raise failure

    def _candidates(self, generation: Generation) -> Iterator[Connection]:
        """The conversation's own server first, the others behind it; a lone server twice. One that was named: it alone."""
        if generation.place is not None:
            ordered = [self._settings.endpoints[generation.place]]
        else:
            ordered = self._standing.candidates(session_of(generation.request_id), asyncio.get_running_loop().time())
        for endpoint in ordered if len(ordered) > 1 else ordered * 2:
            if (connection := self._connections.get(endpoint)) is not None:
                yield connection

    def _note(self, endpoint: Endpoint, error: EngineError) -> None:
        """A failure of the server, not of the request, sets it aside."""
        if not error.retryable:
            _log.error("llm server refuses", extra={"endpoint": endpoint.name, "why": str(error)})
            return
        level = logging.DEBUG if self._standing.is_down(endpoint) else logging.WARNING  # said once, not at every look
        _log.log(level, "llm server failed", extra={"endpoint": endpoint.name, "kind": error.kind, "why": str(error)})
        if isinstance(error, EngineBusy) and len(self._connections) == 1:
            return  # it lives, and there is nobody else to turn to
        self._standing.failed(endpoint, asyncio.get_running_loop().time(), str(error), error.retry_after_s)

    def _answered(self, endpoint: Endpoint) -> None:
        if self._standing.is_down(endpoint):
            _log.info("llm server answers again", extra={"endpoint": endpoint.name})
        self._standing.answered(endpoint)
        self._asked_s[endpoint] = asyncio.get_running_loop().time()

    async def _until_one_answers(self) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._settings.start_s
        while True:
            await self._probe_all(self._connections.values(), is_start=True)
            if self._standing.is_any_up:
                return
            if loop.time() >= until_s:
                raise EngineSetupError(f"no chat server answers after {self._settings.start_s:g} s: {self._standing.words()}")
            await asyncio.sleep(_WATCH_S)

    async def _probe_all(self, connections: Iterable[Connection], *, is_start: bool) -> None:
        try:
            async with asyncio.TaskGroup() as probes:
                for connection in connections:
                    probes.create_task(self._probe(connection, is_start=is_start), name=f"probe {connection.endpoint.name}")
        except ExceptionGroup as group:  # a wrong key, told by one or by all of them
            raise group.exceptions[0] from group

    async def _probe(self, connection: Connection, *, is_start: bool) -> None:
        endpoint = connection.endpoint
        self._asked_s[endpoint] = asyncio.get_running_loop().time()
        try:
            offered = await connection.models()
        except EngineError as error:
            self._note(endpoint, error)
            return
        except EngineSetupError as error:
            if is_start:
                raise
            self._note(endpoint, EngineNotReady(str(error)))
            return
        self._answered(endpoint)
        self._model = self._model or (offered[0] if offered else "")
        if is_start and offered and self._model not in offered:
            _log.warning(
                "llm server does not list the model", extra={"endpoint": endpoint.name, "model": self._model, "offered": offered[:20]}
            )

    async def _watch(self) -> None:
        """Ask those that are down when their pause is over, and idle ones now and then."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_WATCH_S)
            now_s = loop.time()
            due = [
                connection
                for endpoint, connection in self._connections.items()
                if (self._standing.is_down(endpoint) and self._standing.is_due(endpoint, now_s))
                or now_s - self._asked_s.get(endpoint, 0.0) >= _ASK_AGAIN_S
            ]
            await self._probe_all(due, is_start=False)


def _may_retry(failure: EngineError, *, is_alone: bool) -> bool:
    """Whether another attempt may help. The same server is not asked again when it is busy or silent."""
    if not failure.retryable:
        return False
    return not is_alone or not (isinstance(failure, EngineBusy | EngineStalled) or failure.retry_after_s is not None)
