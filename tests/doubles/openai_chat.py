"""A local double of a chat server (`/v1/chat/completions` over SSE): how servers answer, and every known way to fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec import Struct


class Answer(Struct, frozen=True, kw_only=True):
    """How one request is answered: `pieces` are written as they are, one by one.

    `cut_after`, `stall_after`: number of pieces before the connection breaks, or before silence. `linger_s`: open after the last one.
    """

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    content_type: str = "text/event-stream"
    retry_after: str | None = None
    first_s: float = 0.0
    piece_s: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    linger_s: float = 0.0


def event(body: Any) -> bytes:  # Any: JSON
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def piece(content: str | None = None, finish: str | None = None, **delta: Any) -> bytes:
    """A chunk as OpenAI writes it."""
    return event({"choices": [{"index": 0, "delta": {"content": content, **delta}, "finish_reason": finish}], "usage": None})


def counts(prompt: int = 20, output: int = 3, cached: int | None = 16) -> bytes:
    """The chunk that carries the counts alone."""
    details = None if cached is None else {"cached_tokens": cached}
    return event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output, "prompt_tokens_details": details}})


DONE = b"data: [DONE]\n\n"


def reply(texts: Iterable[str] = ("The sea ", "is wide", "."), finish: str = "stop") -> tuple[bytes, ...]:
    """A whole good answer."""
    return (piece("", role="assistant"), *(piece(text) for text in texts), piece(None, finish), counts(), DONE)


GOOD = Answer(pieces=reply())


class ChatServer:
    """Serves on 127.0.0.1 or on a Unix socket; answers by `script` in order, then by `default`."""

    def __init__(self, models: tuple[str, ...] = ("sea-7b",)) -> None:
        self.script: deque[Answer] = deque()
        self.default = GOOD
        self.models = models
        self.models_status = 200
        self.requests: list[dict[str, Any]] = []  # Any: JSON
        self.headers: list[dict[str, str]] = []
        self.peers: set[int] = set()
        self.n_connections = 0
        self.n_running = 0
        self.n_probes = 0
        self.closed_s: list[float] = []  # when a request's reader had gone
        self.address = ""

    @asynccontextmanager
    async def running(self, socket: Path | None = None) -> AsyncGenerator[ChatServer, None]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._on_chat)
        app.router.add_get("/v1/models", self._on_models)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        if socket is not None:
            await web.UnixSite(runner, str(socket)).start()
            self.address = f"unix:{socket}"
        else:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            self.address = f"http://{host}:{port}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _on_models(self, _: web.Request) -> web.Response:
        self.n_probes += 1
        return web.json_response({"object": "list", "data": [{"id": name} for name in self.models]}, status=self.models_status)

    async def _on_chat(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.transport is not None:
            self.peers.add(id(request.transport))
        answer = self.script.popleft() if self.script else self.default
        self.n_running += 1
        try:
            await asyncio.sleep(answer.first_s)
            return await self._answer(request, answer)
        except asyncio.CancelledError:
            self.closed_s.append(time.monotonic())
            raise
        finally:
            self.n_running -= 1

    async def _answer(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        headers = {"Content-Type": answer.content_type}
        if answer.retry_after is not None:
            headers["Retry-After"] = answer.retry_after
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        for n, data in enumerate(answer.pieces):
            if n == answer.cut_after and request.transport is not None:
                request.transport.abort()
                return response
            if n == answer.stall_after:
                await asyncio.sleep(60)
            await response.write(data)
            await asyncio.sleep(answer.piece_s)
        await asyncio.sleep(answer.linger_s)
        await response.write_eof()
        return response
