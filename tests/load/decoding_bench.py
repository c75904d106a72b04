"""What a client's opus costs, decoded on the event loop and in the decoders' process: `python -m tests.load.decoding_bench`.

N microphones send a packet of 20 ms each 20 ms. Latency is from the call to the PCM; CPU is this process's, per second of one stream.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import time

import numpy as np

from engine.audio_codecs.opus import OpusDecoder, OpusEncoder
from engine.decoding import DecodingRoom

SECONDS = 5.0


def packets() -> list[bytes]:
    """A second of something that is no silence."""
    at = np.arange(16_000) / 16_000
    sound = 8000 * np.sin(2 * math.pi * (200 + 150 * at) * at) + np.random.default_rng(1).normal(0, 500, 16_000)
    return OpusEncoder(16_000).feed(sound.astype("<i2").tobytes())


async def remote(n: int, sound: list[bytes], room: DecodingRoom) -> list[float]:
    waits: list[float] = []

    async def speak() -> None:
        decoder = room.stream()
        await asyncio.sleep(random.random() * 0.02)
        ends_s, k = time.monotonic() + SECONDS, 0
        while (began_s := time.monotonic()) < ends_s:
            await decoder.decode(sound[k % len(sound)])
            waits.append(time.monotonic() - began_s)
            k += 1
            await asyncio.sleep(max(0.0, 0.02 - (time.monotonic() - began_s)))

    await asyncio.gather(*(speak() for _ in range(n)))
    return waits


async def local(n: int, sound: list[bytes]) -> list[float]:
    waits: list[float] = []

    async def speak() -> None:
        decoder = OpusDecoder(16_000)
        await asyncio.sleep(random.random() * 0.02)
        ends_s, k = time.monotonic() + SECONDS, 0
        while (began_s := time.monotonic()) < ends_s:
            decoder.decode(sound[k % len(sound)])
            waits.append(time.monotonic() - began_s)
            k += 1
            await asyncio.sleep(max(0.0, 0.02 - (time.monotonic() - began_s)))

    await asyncio.gather(*(speak() for _ in range(n)))
    return waits


async def measure(counts: list[int]) -> None:
    sound = packets()
    room = DecodingRoom()
    await room.start()
    try:
        for n in counts:
            for name in ("on the loop", "in a process"):
                cpu_s = time.process_time()
                waits = sorted(await (local(n, sound) if name == "on the loop" else remote(n, sound, room)))
                cpu_ms = (time.process_time() - cpu_s) * 1000 / (n * SECONDS)
                p50, p99 = (waits[int(len(waits) * q)] * 1000 for q in (0.5, 0.99))
                print(
                    f"{n:4} streams  {name:12}  p50 {p50:6.3f} ms  p99 {p99:7.3f} ms  CPU {cpu_ms:5.2f} ms per second of a stream",
                    flush=True,
                )
    finally:
        await room.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 20, 100])
    import uvloop

    uvloop.run(measure(parser.parse_args().streams))
