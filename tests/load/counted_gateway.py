"""A gateway with scripted engines that collects its garbage on SIGUSR1 and tells how many tasks it runs. Run by `leak_check`."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys

import uvloop

from gateway import logs, server
from gateway.config import load


def tell() -> None:
    """The number of tasks, on stderr; what only waits for the collector is no leak and goes first."""
    gc.collect()
    print(f"tasks: {len(asyncio.all_tasks())}", file=sys.stderr, flush=True)


async def serve() -> None:
    """Run until SIGTERM."""
    settings = load(None, overrides={"server.port": 0, "llm.engine": "fake", "tts.engines": ["fake"]})
    logs.configure(settings.log.level)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, tell)
    await server.serve(settings, None)


if __name__ == "__main__":
    os.environ.pop("STRETTO_KEYS", None)
    uvloop.run(serve())
