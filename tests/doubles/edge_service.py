"""A local double of the edge voice service: token, 403 with `Date`, metadata, MP3, and every known way to fail.

Speaks tones (see `spoken_tones`), encoded as the service encodes: MP3, 24 kHz, 48 kbit/s, mono. The network is simulated on our
side of the socket: three round trips before the upgrade (TCP, TLS, HTTP; loopback's own are free), one before each answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from functools import lru_cache
from html import unescape

import aiohttp
import lameenc
import msgspec
from aiohttp import web
from edge_tts.drm import generate_sec_ms_gec_v2
from msgspec import Struct

from tests.doubles import spoken_tones

MESSAGE_BYTES = 720  # as the service cuts its audio: 120 ms
WINDOW_S = 300.0


class Behavior(Struct, frozen=True, kw_only=True):
    """How one request, or one handshake, is answered."""

    refuse_status: int | None = None  # answer the upgrade with this status
    retry_after: str | None = None
    drop_after_bytes: int | None = None  # close the connection after so much audio
    stall_after_bytes: int | None = None  # say nothing more after so much audio
    end_after_bytes: int | None = None  # `turn.end` after so much audio
    garbage: str | None = None  # "audio", "text", "header", "metadata", "html"
    endless: bool = False  # never stop repeating the audio
    no_words: bool = False
    drop_at_request: bool = False
    late_words: bool = False  # word times come after their audio


GOOD = Behavior()


class Request(Struct, frozen=True, kw_only=True):
    """What was asked for."""

    ssml: str
    text: str
    voice: str


class EdgeService:
    """Serves on 127.0.0.1. `script` is used up by requests (and `handshakes` by upgrades) in order; then all goes well.

    `speed`: audio leaves so many times faster than real time. `one_way_s`: simulated network.
    """

    def __init__(self, *, one_way_s: float = 0.0, speed: float = 0.0, think_s: float = 0.0, skew_s: float = 0.0) -> None:
        self.one_way_s, self.speed, self.think_s, self.skew_s = one_way_s, speed, think_s, skew_s
        self.date: str | None = None
        self.script: deque[Behavior] = deque()
        self.handshakes: deque[Behavior] = deque()
        self.choose: Callable[[str], Behavior] | None = None
        self.requests: list[Request] = []
        self.n_upgrades = 0
        self.n_refused = 0
        self.open_sockets: set[web.WebSocketResponse] = set()
        self.url = ""

    def now_s(self) -> float:
        """The service's clock."""
        return time.time() + self.skew_s

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[EdgeService, None]:
        app = web.Application()
        app.router.add_get("/edge/v1", self._on_upgrade)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"ws://{host}:{port}/edge/v1?TrustedClientToken=double"
        try:
            yield self
        finally:
            for socket in list(self.open_sockets):
                await socket.close()
            await runner.cleanup()

    async def drop_idle(self) -> None:
        """Cut every open connection, as a service that tires of idle ones."""
        for socket in list(self.open_sockets):
            await socket.close()

    async def _on_upgrade(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(6 * self.one_way_s)
        behavior = self.handshakes.popleft() if self.handshakes else GOOD
        status = behavior.refuse_status
        if status is None and not self._token_is_good(request.query.get("Sec-MS-GEC", "")):
            status = 403
        if status is not None:
            self.n_refused += 1
            headers = {"Date": self.date or formatdate(self.now_s(), usegmt=True)}
            if behavior.retry_after is not None:
                headers["Retry-After"] = behavior.retry_after
            return web.Response(status=status, headers=headers, text="<html>no</html>", content_type="text/html")
        socket = web.WebSocketResponse(compress=True)
        await socket.prepare(request)
        self.n_upgrades += 1
        self.open_sockets.add(socket)
        try:
            await self._serve(socket)
        finally:
            self.open_sockets.discard(socket)
        return socket

    def _token_is_good(self, token: str) -> bool:
        return token in {generate_sec_ms_gec_v2(self.now_s() + offset) for offset in (-WINDOW_S, 0, WINDOW_S)}

    async def _serve(self, socket: web.WebSocketResponse) -> None:
        has_config = False
        async for message in socket:
            if message.type != aiohttp.WSMsgType.TEXT:
                continue
            head, _, body = message.data.partition("\r\n\r\n")
            if "Path:speech.config" in head:
                has_config = '"outputFormat":"audio-24khz-48kbitrate-mono-mp3"' in body
            elif "Path:ssml" in head and has_config:
                await self._answer(socket, _read_ssml(body))

    async def _answer(self, socket: web.WebSocketResponse, request: Request) -> None:
        self.requests.append(request)
        behavior = self.script.popleft() if self.script else GOOD
        if self.choose is not None:
            behavior = self.choose(request.text)
        if behavior.drop_at_request:
            await self._drop(socket)
            return
        await asyncio.sleep(2 * self.one_way_s)
        try:
            await self._speak(socket, request.text, behavior)
        except (ConnectionError, RuntimeError):
            pass  # the client has gone

    async def _speak(self, socket: web.WebSocketResponse, text: str, behavior: Behavior) -> None:
        await socket.send_str("X-RequestId:1\r\nPath:turn.start\r\n\r\n{}")
        await socket.send_str("X-RequestId:1\r\nPath:response\r\n\r\n{}")
        await asyncio.sleep(self.think_s)
        audio = encode(spoken_tones.speak(text))
        words = [] if behavior.no_words else spoken_tones.timings(text)
        if behavior.garbage is not None:
            await _send_garbage(socket, behavior.garbage, audio)
        started, sent = time.monotonic(), 0
        for at in range(0, len(audio), MESSAGE_BYTES):
            if await self._fails(socket, behavior, sent):
                return
            data = audio[at : at + MESSAGE_BYTES]
            ahead_ms = (sent + len(data)) / 6
            if not behavior.late_words:
                words = await _send_words(socket, words, ahead_ms)
            await socket.send_bytes(_binary(data))
            sent += len(data)
            if behavior.late_words:
                words = await _send_words(socket, words, ahead_ms - 200)
            if self.speed:
                await asyncio.sleep(max(0.0, started + sent / 6000 / self.speed - time.monotonic()))
        await _send_words(socket, words, 1e9)
        while behavior.endless:
            await socket.send_bytes(_binary(audio[: len(audio) // 144 * 144][-1440:]))
            await asyncio.sleep(0)
        if not await self._fails(socket, behavior, sent):
            await _end(socket)

    async def _fails(self, socket: web.WebSocketResponse, behavior: Behavior, sent: int) -> bool:
        if behavior.drop_after_bytes is not None and sent >= behavior.drop_after_bytes:
            await self._drop(socket)
            return True
        if behavior.stall_after_bytes is not None and sent >= behavior.stall_after_bytes:
            return True
        if behavior.end_after_bytes is not None and sent >= behavior.end_after_bytes:
            await _end(socket)
            return True
        return False

    async def _drop(self, socket: web.WebSocketResponse) -> None:
        transport = socket.get_extra_info("transport") or (socket._req.transport if socket._req is not None else None)
        if transport is not None:
            transport.abort()


@lru_cache(maxsize=512)
def encode(pcm: bytes) -> bytes:
    """MP3 as the service makes it."""
    encoder = lameenc.Encoder()
    encoder.set_bit_rate(48)
    encoder.set_in_sample_rate(24_000)
    encoder.set_channels(1)
    encoder.set_quality(7)
    encoder.silence()
    return bytes(encoder.encode(pcm)) + bytes(encoder.flush())


def _read_ssml(ssml: str) -> Request:
    voice = ssml.partition("<voice name='")[2].partition("'")[0]
    text = ssml.partition("<prosody ")[2].partition(">")[2].rpartition("</prosody>")[0]
    return Request(ssml=ssml, text=unescape(text), voice=voice)


def _binary(data: bytes) -> bytes:
    head = b"X-RequestId:1\r\nContent-Type:audio/mpeg\r\nX-StreamId:1\r\nPath:audio\r\n"
    return len(head).to_bytes(2, "big") + head + data


async def _send_words(socket: web.WebSocketResponse, words: list[tuple[str, int, int]], until_ms: float) -> list[tuple[str, int, int]]:
    """Tell the words that start before `until_ms`; return the others."""
    due = [word for word in words if word[1] < until_ms]
    for text, start_ms, end_ms in due:
        data = {"Offset": start_ms * 10_000, "Duration": (end_ms - start_ms) * 10_000, "text": {"Text": text, "Length": len(text)}}
        body = msgspec.json.encode({"Metadata": [{"Type": "WordBoundary", "Data": data}]}).decode()
        await socket.send_str(f"X-RequestId:1\r\nContent-Type:application/json\r\nPath:audio.metadata\r\n\r\n{body}")
    return words[len(due) :]


async def _end(socket: web.WebSocketResponse) -> None:
    head = b"X-RequestId:1\r\nPath:audio\r\n"
    await socket.send_bytes(len(head).to_bytes(2, "big") + head)
    await socket.send_str("X-RequestId:1\r\nPath:turn.end\r\n\r\n{}")


async def _send_garbage(socket: web.WebSocketResponse, kind: str, audio: bytes) -> None:
    match kind:
        case "audio":
            for _ in range(10):
                await socket.send_bytes(_binary(bytes(range(200)) * 5))
        case "text":
            await socket.send_str("what is this")
        case "header":
            head = b"a line without a colon\r\nPath:other\r\n"
            await socket.send_bytes(len(head).to_bytes(2, "big") + head + audio[:144])
        case "metadata":
            await socket.send_str("X-RequestId:1\r\nPath:audio.metadata\r\n\r\n{not json")
        case "html":
            await socket.send_str("<html><body>Service Unavailable</body></html>")
