"""What the two protocols cost: bytes per second of conversation, microseconds per event, socket open to the first event.

Run: `python -m tests.load.codec_bench`. Prints one JSON object; nothing is asserted, machines differ.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec
from websockets.asyncio.client import connect

from gateway.codecs import Codec
from gateway.codecs.native import SUBPROTOCOL, NativeCodec
from gateway.codecs.realtime import RealtimeCodec
from gateway.events import AudioFrame, SendText, ServerEvent, SessionReady, SessionUpdated, StartSession, TurnDone
from tests.doubles.answering import AnsweringModel
from tests.running import gateway
from tests.session.stage import stage
from tests.session.virtual_loop import VirtualLoop

ROUNDS = 30
OPENS = 40


async def reply_events(start: StartSession) -> tuple[list[ServerEvent], SessionUpdated, SessionReady]:
    """Everything that one spoken reply of six sentences sends."""
    async with stage(model=AnsweringModel(), start=start) as scene:
        scene.send(SendText(text="Talk at length."))
        await scene.until(TurnDone)
        return [event for _, _, event in scene.frames], scene.session.profile.described(), scene.ready


def size(frames: list[bytes | str]) -> int:
    """Bytes on the socket, with the WebSocket header of a server's frame."""
    lengths = [len(frame.encode() if isinstance(frame, str) else frame) for frame in frames]
    return sum(length + (2 if length < 126 else 4 if length < 65_536 else 10) for length in lengths)


def measure(made: Callable[[], Codec], events: list[ServerEvent], settings: SessionUpdated, ready: SessionReady) -> dict[str, float]:
    """Encoding of a whole reply, again and again with a fresh codec."""
    seconds = sum(len(event.data) for event in events if isinstance(event, AudioFrame)) / 48_000
    spent, n_bytes = [], 0
    for _ in range(ROUNDS):
        codec = made()
        codec.welcome(ready, settings)
        started = time.perf_counter()
        frames = [frame for seq, event in enumerate(events, 1) for frame in codec.encode(event, seq)]
        spent.append((time.perf_counter() - started) / len(events) * 1e6)
        n_bytes = size(frames)
    return {"bytes_per_s": round(n_bytes / seconds), "encode_us_per_event": round(statistics.median(spent), 2)}


def decoding_us(codec: Codec, frame: bytes | str) -> float:
    n = 3000
    started = time.perf_counter()
    for _ in range(n):
        codec.decode(frame)
    return round((time.perf_counter() - started) / n * 1e6, 2)


async def opening_ms(url: str, start: bytes | None) -> dict[str, float]:
    """From the first byte of the TCP connection to the first event."""
    taken = []
    for _ in range(OPENS):
        began = time.perf_counter()
        async with connect(url, subprotocols=[SUBPROTOCOL] if start else None, compression=None) as socket:  # type: ignore[list-item]
            if start is not None:
                await socket.send(start)
            await socket.recv()
            taken.append((time.perf_counter() - began) * 1000)
    taken.sort()
    return {"p50": round(statistics.median(taken), 2), "p95": round(taken[int(len(taken) * 0.95)], 2)}


def main() -> None:
    """Measure and print."""
    loop = VirtualLoop()
    events, settings, ready = loop.run_until_complete(reply_events(StartSession()))
    loop.close()

    def native() -> Codec:
        return NativeCodec(65_536, 120)

    def realtime() -> Codec:
        return RealtimeCodec("u", "stretto", 1 << 20, 3600)

    found: dict[str, Any] = {"native": measure(native, events, settings, ready), "realtime": measure(realtime, events, settings, ready)}
    found["native_share_of_realtime_bytes"] = round(found["native"]["bytes_per_s"] / found["realtime"]["bytes_per_s"], 3)
    found["n_events"], found["n_audio_frames"] = len(events), sum(isinstance(event, AudioFrame) for event in events)
    reader = realtime()
    reader.welcome(ready, settings)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "How are you today?"}]}
    found["realtime"]["decode_us"] = decoding_us(reader, json.dumps({"type": "conversation.item.create", "item": item}))
    found["native"]["decode_us"] = decoding_us(native(), msgspec.msgpack.encode({"type": "text", "text": "How are you today?"}))
    with gateway() as running:
        realtime_url = f"ws://127.0.0.1:{running.port}/v1/realtime"
        found["realtime"]["open_ms"] = asyncio.run(opening_ms(realtime_url, None))
        found["native"]["open_ms"] = asyncio.run(opening_ms(running.voice_url, msgspec.msgpack.encode({"type": "session.start"})))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
