"""A server of the native protocol on a real loopback socket that does exactly what a test's script says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from msgspec import structs
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request
from websockets.typing import Subprotocol

from gateway.codecs.native import SUBPROTOCOL, decode_client, encode_server
from gateway.events import (
    AudioFrame,
    AudioOut,
    ClientEvent,
    Limits,
    ReplyDone,
    ReportPlayout,
    SegmentDecided,
    ServerEvent,
    SessionReady,
    StartSession,
    TextDelta,
    Timeline,
    TurnDone,
    TurnStarted,
    UsageInfo,
)

FRAME_20_MS = bytes(960)


def ready(*, resumed: bool = False, token: str = "t1") -> SessionReady:
    return SessionReady(
        session_id="s1",
        resume_token=token,
        resumed=resumed,
        limits=Limits(lead_ms=1000, idle_s=120, message_bytes=65_536, text_bytes=32_768),
        audio_out=AudioOut(),
        voices=(),
    )


class Peer:
    """The server's end of one connection: numbered frames out, decoded events in."""

    def __init__(self, socket: ServerConnection, received: list[ClientEvent], seq: int = 0) -> None:
        self.socket, self.received, self.seq = socket, received, seq

    async def send(self, event: ServerEvent, *, numbered: bool = True) -> None:
        self.seq += numbered
        await self.socket.send(encode_server(event, self.seq if numbered else None))

    async def receive(self) -> ClientEvent:
        frame = await self.socket.recv(decode=False)
        event = decode_client(frame)
        self.received.append(event)
        return event

    async def receive_until(self, is_wanted: Callable[[ClientEvent], bool]) -> ClientEvent:
        while not is_wanted(event := await self.receive()):
            pass
        return event

    async def start(self, *, resumed: bool = False, gap: bool | None = None, turns: int | None = None) -> StartSession:
        start = await self.receive()
        assert isinstance(start, StartSession)
        await self.send(structs.replace(ready(resumed=resumed), gap=gap, turns=turns), numbered=False)
        return start


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """Runs the n-th script for the n-th connection."""

    def __init__(self, scripts: tuple[Script, ...]) -> None:
        self.scripts, self.url = list(scripts), ""
        self.received: list[ClientEvent] = []
        self.requests: list[Request] = []
        self.faults: list[BaseException] = []

    async def handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.requests.append(socket.request)
        try:
            await self.scripts.pop(0)(Peer(socket, self.received))
        except ConnectionClosed:
            pass
        except Exception as error:
            self.faults.append(error)
            raise


@asynccontextmanager
async def serving(*scripts: Script) -> AsyncGenerator[ScriptedServer, None]:
    server = ScriptedServer(scripts)
    async with serve(server.handle, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        server.url = f"ws://127.0.0.1:{port}/v1/voice"
        yield server
    assert not server.faults


async def reply_with_two_segments(peer: Peer) -> None:
    await peer.start()
    ask = await peer.receive()
    await peer.send(TurnStarted(turn=1, item_id="u1", ref=ask.id))
    for index, text in enumerate(("The sea is wide.", " It is deep.")):
        await peer.send(TextDelta(turn=1, text=text, tokens=4))
        await peer.send(SegmentDecided(turn=1, index=index, text=text, cut="stop"))
        await peer.send(AudioFrame(turn=1, index=index, pts_ms=20 * index, data=FRAME_20_MS))
    await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=9, cached_tokens=0, output_tokens=8)))
    await peer.receive_until(lambda e: isinstance(e, ReportPlayout) and e.final)
    await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline(ttft_ms=1.0)))
    await peer.socket.wait_closed()
