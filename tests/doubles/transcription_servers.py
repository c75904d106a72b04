"""Local doubles of transcription servers: OpenAI's `/v1/audio/transcriptions`, and vLLM's realtime socket.

What they understand is how much audio they got, in words that a test can check: "1000 ms".
"""

from __future__ import annotations

import asyncio
import base64
import json
import wave
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

from aiohttp import web
from msgspec import Struct
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed


class Reply(Struct, frozen=True, kw_only=True):
    """How one request is answered; `body` in place of the transcript."""

    status: int = 200
    retry_after: str | None = None
    body: bytes | None = None
    wait_s: float = 0.0


class TranscriptionServer:
    """Serves on 127.0.0.1; answers by `script` in order, then well."""

    def __init__(self) -> None:
        self.script: deque[Reply] = deque()
        self.requests: list[dict[str, Any]] = []  # Any: form fields
        self.peers: set[int] = set()
        self.n_running = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[TranscriptionServer, None]:
        app = web.Application()
        app.router.add_post("/v1/audio/transcriptions", self._on_audio)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/v1"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _on_audio(self, request: web.Request) -> web.Response:
        form = await request.post()
        file = form["file"]
        assert isinstance(file, web.FileField), "the audio is a file"
        with file.file as data:
            sound = data.read()
        with wave.open(BytesIO(sound)) as audio:
            heard = (audio.getnchannels(), audio.getsampwidth(), audio.getframerate())
            length_ms = audio.getnframes() * 1000 // audio.getframerate()
        fields = {key: value for key, value in form.items() if key != "file"}
        self.requests.append(fields | {"_key": request.headers.get("Authorization"), "_audio": heard, "_ms": length_ms})
        if request.transport is not None:
            self.peers.add(request.transport.get_extra_info("peername")[1])
        reply = self.script.popleft() if self.script else Reply()
        self.n_running += 1
        try:
            await asyncio.sleep(reply.wait_s)
        finally:
            self.n_running -= 1
        headers = {"Retry-After": reply.retry_after} if reply.retry_after else {}
        if reply.body is not None:
            return web.Response(status=reply.status, body=reply.body, headers=headers)
        answer: dict[str, Any] = {"text": f" {length_ms} ms "}  # Any: JSON
        if fields["response_format"] == "verbose_json":
            answer |= {"language": "english", "words": [{"word": " ms", "start": 0.25, "end": 0.5}]}
        return web.json_response(answer, status=reply.status, headers=headers)


class RealtimeServer:
    """vLLM's `/v1/realtime`: a word for each whole second, "done" after the final commit."""

    def __init__(self) -> None:
        self.connections: list[dict[str, Any]] = []  # Any: what each one said: model, bytes, whether it ended
        self.fail: deque[str] = deque()  # for the next connections: "error", "drop", "deaf", "garbage"
        self.n_open = 0
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[RealtimeServer, None]:
        async with serve(self._on_socket, "127.0.0.1", 0) as server:
            host, port = next(iter(server.sockets)).getsockname()[:2]
            self.url = f"http://{host}:{port}/v1"
            yield self

    async def _on_socket(self, socket: ServerConnection) -> None:
        assert socket.request is not None, "the handshake is over"
        state: dict[str, Any] = {"path": socket.request.path, "key": socket.request.headers.get("Authorization"), "bytes": 0, "model": None}
        self.connections.append(state | {"ended": False})
        record = self.connections[-1]
        fault = self.fail.popleft() if self.fail else ""
        self.n_open += 1
        try:
            await socket.send(json.dumps({"type": "session.created", "id": "sess-1", "created": 1}))
            async for message in socket:
                await self._on_event(socket, json.loads(message), record, fault)
        except ConnectionClosed:
            pass
        finally:
            self.n_open -= 1

    async def _on_event(self, socket: ServerConnection, event: dict[str, Any], record: dict[str, Any], fault: str) -> None:
        match event["type"]:
            case "session.update":
                record["model"] = event["model"]
            case "input_audio_buffer.append":
                before = record["bytes"] // 32_000
                record["bytes"] += len(base64.b64decode(event["audio"]))
                if fault == "error":
                    await socket.send(json.dumps({"type": "error", "error": "no such model", "code": "model_not_validated"}))
                elif fault == "drop":
                    socket.transport.abort()
                elif fault == "garbage":
                    await socket.send("not json")
                elif not fault:
                    for second in range(before, record["bytes"] // 32_000):
                        await socket.send(json.dumps({"type": "transcription.delta", "delta": f" word{second}"}))
            case "input_audio_buffer.commit":
                if event.get("final") and fault != "deaf":
                    record["ended"] = True
                    text = f" {record['bytes'] // 32} ms"
                    await socket.send(json.dumps({"type": "transcription.done", "text": text, "usage": None}))
