"""Stands in for vLLM's server module: the same `--uds`, the chat double behind it. `VLLM_DOUBLE_FAULT`: dies with these words."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

from tests.doubles.openai_chat import ChatServer


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--uds", type=Path, required=True)
    parser.add_argument("--served-model-name", required=True)
    known, _ = parser.parse_known_args()
    if fault := os.environ.get("VLLM_DOUBLE_FAULT"):
        raise RuntimeError(fault)
    async with ChatServer(models=(known.served_model_name,)).running(known.uds):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
