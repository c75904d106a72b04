"""Stands in for vLLM's server module: the same `--uds`, the chat double behind it.

`VLLM_DOUBLE_FAULT`: dies with these words. `VLLM_DOUBLE_DEAF`: answers no request for one token, and all others slowly (3 s).
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from aiohttp import web

from tests.doubles.openai_chat import Answer, ChatServer, reply


class Deaf(ChatServer):
    async def _answer(self, request: web.Request, answer: Answer) -> web.StreamResponse:
        if (await request.json())["max_tokens"] == 1:
            await asyncio.sleep(60)
        return await super()._answer(request, Answer(pieces=reply(["sea "] * 60), piece_s=0.05))


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", type=Path, required=True)
    parser.add_argument("--served-model-name", required=True)
    known, _ = parser.parse_known_args()
    if fault := os.environ.get("VLLM_DOUBLE_FAULT"):
        raise RuntimeError(fault)
    kind = Deaf if os.environ.get("VLLM_DOUBLE_DEAF") else ChatServer
    async with kind(models=(known.served_model_name,)).running(known.uds):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
