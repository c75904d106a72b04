"""What local voices and codecs cost on a real socket.

    python -m tests.load.audio_out_bench            all of it (needs the voices' weights and the extra `codecs`)

A gateway in a process of its own, a scripted language model, real voices. Segment decided -> first audio frame: between the two frames'
arrival at a client on this machine, 30 segments one after the other. Wire bytes: whole `audio` messages over the time they sound.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time

import msgspec

from gateway.client.playout import length_ms
from gateway.events import AudioOut
from tests.protocol.peer import Peer, peer
from tests.running import Running, gateway

SENTENCES = (
    "Of course, I can help you with that right away.", "Hello, how can I help you today?", "It is about ten minutes on foot.",
    "The sea covers most of our planet.", "I would take the early train.", "Nobody knows how many there are.",
)  # fmt: skip
N_SEGMENTS, RATE_HZ = 30, 24_000
VOICES = ("espeak", "piper")
CODECS = ("pcm16", "opus", "mp3")


async def first_audio_ms(client: Peer, text: str) -> float:
    """From the `segment` frame's arrival to the first `audio` frame's."""
    await client.send(type="say", text=text)
    await client.until("segment")
    decided = time.perf_counter()
    await client.until("audio")
    took_ms = (time.perf_counter() - decided) * 1000
    await client.send(type="cancel")
    await client.until("interrupted")
    return took_ms


async def segments(running: Running, codec: str) -> list[float]:
    took = []
    async with peer(running.voice_url, start={"audio_out": {"codec": codec, "rate_hz": RATE_HZ}}) as client:
        for n in range(N_SEGMENTS + 2):
            took.append(await first_audio_ms(client, SENTENCES[n % len(SENTENCES)]))
            await asyncio.sleep(0.1)
    return took[2:]


async def wire_bytes_per_s(running: Running, codec: str) -> tuple[float, float]:
    """(bytes of whole messages, bytes of audio) for each second that sounds."""
    audio_out = AudioOut(codec=codec, rate_hz=RATE_HZ)  # type: ignore[arg-type]  # one of CODECS
    n_wire = n_audio = 0
    sounds_ms = 0.0
    async with peer(running.voice_url, start={"audio_out": {"codec": codec, "rate_hz": RATE_HZ}}) as client:
        await client.send(type="say", text=" ".join(SENTENCES))
        for frame in await client.frames_until("reply.done"):
            if frame["type"] == "audio":
                n_wire, n_audio = n_wire + len(msgspec.msgpack.encode(frame)), n_audio + len(frame["data"])
                sounds_ms += length_ms(frame["data"], audio_out)
    return n_wire / sounds_ms * 1000, n_audio / sounds_ms * 1000


def settings(voice: str) -> dict[str, str]:
    return {"STRETTO_LLM__ENGINE": "fake", "STRETTO_TTS__ENGINES": json.dumps([voice]), "STRETTO_ASR__ENGINE": "off"}


async def main() -> None:
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {N_SEGMENTS} segments each\n")
    print("| voice | codec | segment decided -> first audio frame, p50 / p99 ms | wire bytes/s | of them audio |\n|---|---|---|---|---|")
    for voice in VOICES:
        with gateway(settings(voice)) as running:
            for codec in CODECS:
                took = sorted(await segments(running, codec))
                wire, audio = await wire_bytes_per_s(running, codec)
                p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
                print(f"| {voice} | {codec} | {statistics.median(took):.0f} / {p99:.0f} | {wire:.0f} | {audio:.0f} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("expected no arguments")
    asyncio.run(main())
