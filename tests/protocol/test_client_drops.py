"""The Python client over a connection that keeps breaking: the conversation comes through whole, and nothing twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.client import Conversation, Reply, connect
from gateway.events import AudioFrame, SegmentDecided, SegmentDone, TurnDone, TurnStarted
from tests.running import Running, gateway

TURNS = 2
READY_BYTES = 1500  # a cut inside `session.ready` loses the new token with it; a client can only begin anew then


class HastySpeaker:
    """Plays everything at once, so that a test does not last as long as the speech."""

    def __init__(self) -> None:
        self._played_ms: dict[int, float] = {}

    def play(self, frame: AudioFrame, n_ms: float) -> None:
        self._played_ms[frame.turn] = self._played_ms.get(frame.turn, 0.0) + n_ms

    def played_ms(self, turn: int) -> float:
        return self._played_ms.get(turn, 0.0)

    def pause(self, turn: int) -> None:
        pass

    def resume(self, turn: int) -> None:
        pass

    def stop(self, turn: int) -> None:
        pass


class CuttingProxy:
    """Forwards bytes, and breaks each connection after a random number of them."""

    def __init__(self, port: int, seed: int) -> None:
        self._port = port
        self._chance = random.Random(seed)
        self.n_cuts = 0
        self.is_kind = False  # no more cuts

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._port)
        budget = READY_BYTES + self._chance.randrange(100, 80_000)
        try:
            async with asyncio.TaskGroup() as tasks:
                up = tasks.create_task(self._pump(reader, back, 1 << 40), name="up")
                await self._pump(there, writer, budget)
                up.cancel()
        finally:
            for stream in (writer, back):
                stream.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, budget: int) -> None:
        with suppress(ConnectionError):
            while data := await source.read(4096):
                if not self.is_kind and len(data) >= budget:
                    sink.write(data[:budget])
                    await sink.drain()
                    self.n_cuts += 1
                    return
                budget -= len(data)
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def cutting(running: Running, seed: int) -> AsyncGenerator[tuple[CuttingProxy, str], None]:
    proxy = CuttingProxy(running.port, seed)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    async with server:
        yield proxy, f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/voice"


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    settings = {
        "STRETTO_FAKE__TTFT_MS": "20",
        "STRETTO_FAKE__ITL_MS": "10",
        "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "10",
        "STRETTO_FAKE__TTS_RTF": "0.02",
    }
    with gateway(settings) as started:
        yield started


async def said(reply: Reply) -> tuple[str, str, bytes, list[int]]:
    """Deltas, segments, audio and announced audio lengths of a whole reply; checks that its frames are in order and each came once."""
    deltas_and_segments: list[str] = []
    pts_ms, audio, lengths = 0.0, b"", []
    kinds: list[type] = []
    async for event in reply:
        kinds.append(type(event))
        match event:
            case SegmentDecided():
                deltas_and_segments.append(event.text)
            case AudioFrame():
                assert event.pts_ms == pytest.approx(pts_ms, abs=0.01), "a frame is missing, or came twice"
                pts_ms += len(event.data) / 48
                audio += event.data
            case SegmentDone():
                lengths.append(event.audio_ms)
    assert (kinds.count(TurnStarted), kinds.count(TurnDone)) == (1, 1)
    return reply.text, "".join(deltas_and_segments), audio, lengths


async def converse(conversation: Conversation, turns: int) -> list[tuple[str, str, bytes, list[int]]]:
    return [await said(await conversation.text(f"Question {n}.")) for n in range(turns)]


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_conversation_survives_its_drops_whole(running: Running, seed: int) -> None:
    async with connect(running.voice_url, player=HastySpeaker()) as conversation:
        (whole,) = await converse(conversation, 1)
    text, segments, audio, lengths = whole
    assert text == segments
    assert sum(lengths) == len(audio) // 48 > 5000
    async with cutting(running, seed) as (proxy, url), connect(url, player=HastySpeaker(), timeout_s=60) as conversation:
        replies = await converse(conversation, TURNS)
        proxy.is_kind = True
        assert proxy.n_cuts >= 5 * TURNS
        async with asyncio.timeout(60):
            while conversation.n_resumes < proxy.n_cuts:  # one may have come behind the last word
                await asyncio.sleep(0.01)
        assert conversation.n_resumes == proxy.n_cuts
    assert replies == [whole] * TURNS
