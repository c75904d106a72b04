"""A local double of a speech server (`/v1/audio/speech`): every format, and every known way to fail."""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import opuscodec
from aiohttp import web
from msgspec import Struct

from tests.doubles import spoken_tones
from tests.doubles.edge_service import encode


class Answer(Struct, frozen=True, kw_only=True):
    """How one request is answered. `cut_after`: bytes before the connection breaks; `stall_after`: before silence."""

    status: int = 200
    content_type: str | None = None
    retry_after: str | None = None
    body: bytes | None = None
    format: str | None = None
    rate_hz: int = 24_000
    first_s: float = 0.0
    piece_bytes: int = 4801
    piece_s: float = 0.0
    cut_after: int | None = None
    stall_after: int | None = None
    endless: bool = False


TYPES = {"pcm": "audio/pcm", "wav": "audio/wav", "mp3": "audio/mpeg", "opus": "audio/ogg"}


class FakeSpeechServer:
    """Serves on 127.0.0.1; answers by `script` in order, then well."""

    def __init__(self) -> None:
        self.script: deque[Answer] = deque()
        self.default = Answer()
        self.requests: list[dict[str, Any]] = []  # Any: JSON
        self.peers: set[int] = set()
        self.n_running = 0
        self.base_url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[FakeSpeechServer, None]:
        app = web.Application()
        app.router.add_post("/v1/audio/speech", self._on_speech)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.base_url = f"http://{host}:{port}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _on_speech(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body | {"_key": request.headers.get("Authorization")})
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername")[1])
        answer = self.script.popleft() if self.script else self.default
        self.n_running += 1
        try:
            await asyncio.sleep(answer.first_s)
            return await self._answer(request, answer, body)
        finally:
            self.n_running -= 1

    async def _answer(self, request: web.Request, answer: Answer, body: dict[str, Any]) -> web.StreamResponse:
        kind = answer.format or body["response_format"]
        headers = {"Content-Type": answer.content_type or TYPES[kind]}
        if answer.retry_after is not None:
            headers["Retry-After"] = answer.retry_after
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        data = answer.body if answer.body is not None else make(kind, body["input"], answer.rate_hz)
        sent = 0
        while sent < len(data) or answer.endless:
            if answer.cut_after is not None and sent >= answer.cut_after and request.transport is not None:
                request.transport.abort()
                return response
            if answer.stall_after is not None and sent >= answer.stall_after:
                await asyncio.sleep(60)
            piece = data[sent % len(data) :][: answer.piece_bytes]
            await response.write(piece)
            sent += len(piece)
            await asyncio.sleep(answer.piece_s)
        await response.write_eof()
        return response


@lru_cache(maxsize=64)
def make(kind: str, text: str, rate_hz: int) -> bytes:
    """The text as tones in one of the formats."""
    pcm = spoken_tones.speak(text, rate_hz)
    match kind:
        case "wav":
            head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
            return b"RIFF\xff\xff\xff\xffWAVE" + head + b"data\xff\xff\xff\xff" + pcm
        case "mp3":
            return encode(pcm)
        case "opus":
            encoder = opuscodec.OpusBufferedEncoder(sample_rate=rate_hz, channels=1)
            return bytes(encoder.write(np.frombuffer(pcm, "<i2").reshape(-1, 1)) + encoder.flush())
        case _:
            return pcm
