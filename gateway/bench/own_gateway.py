"""A gateway process of the bench's own, with fake engines: what the gateway adds, and nothing else, is then measured."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct

from gateway.client import ConnectFailed

COMMAND = (sys.executable, "-m", "gateway", "serve", "--engines", "fake", "--port", "0", "--host", "127.0.0.1")
START_S = 30.0
STOP_S = 5.0
# Defaults; the environment may change them. A voice at exactly real time: no frame can get ahead of the listener, so pacing holds
# none back and every frame's time counts. Nobody is refused for being one too many: that is what is measured.
SETTINGS = {
    "STRETTO_SERVER__DEBUG_STAMPS": "true",
    "STRETTO_SERVER__DRAIN_S": "1.0",
    "STRETTO_FAKE__TTFT_MS": "50.0",
    "STRETTO_FAKE__ITL_MS": "20.0",
    "STRETTO_FAKE__TTS_FIRST_CHUNK_MS": "60.0",
    "STRETTO_FAKE__TTS_RTF": "1.0",
    "STRETTO_SHEDDING__LAG_MS": "0",
    "STRETTO_LOG__LEVEL": "warning",
}


class OwnGateway(Struct, frozen=True):
    """Where it listens, and as which process."""

    url: str
    pid: int
    process: asyncio.subprocess.Process


@asynccontextmanager
async def own_gateway(
    n_sessions: int, command: Sequence[str] = (), settings: Mapping[str, str] | None = None, start_s: float = START_S
) -> AsyncGenerator[OwnGateway, None]:
    """A running gateway, stopped with the block; by default one with fake engines.

    Raises `ConnectFailed` with its last words when it does not start.
    """
    environment = {**(SETTINGS if settings is None else {}), **os.environ, "STRETTO_SESSION__MAX_SESSIONS": str(n_sessions + 8)}
    environment |= settings or {}
    environment.pop("STRETTO_KEYS", None)  # on loopback, for a minute, for ourselves
    # In a session of its own: Ctrl-C at a terminal reaches us, and we end it once its last figures are read.
    process = await asyncio.create_subprocess_exec(
        *(command or COMMAND), env=environment, stderr=asyncio.subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stderr is not None, "the process was made with a pipe"
        port = await announced_port(process.stderr, start_s)
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            drain = tasks.create_task(_discard(process.stderr), name="own gateway's stderr")
            try:
                yield OwnGateway(f"ws://127.0.0.1:{port}/v1/voice", process.pid, process)
            except Exception as error:  # the block's own: kept out of the group, so that the caller sees it unwrapped
                failure = error
            await _stop(process)
            drain.cancel()
        if failure is not None:
            raise failure
    finally:
        await _stop(process)


async def announced_port(stderr: asyncio.StreamReader, start_s: float = START_S) -> int:
    """The port in the gateway's `ready:` line. Raises `ConnectFailed` with its last words."""
    said: list[str] = []
    try:
        async with asyncio.timeout(start_s):
            while line := (await stderr.readline()).decode("utf-8", "replace"):
                said.append(line.rstrip())
                if found := re.search(r"ready: \w+://[^/]*:(\d+)/", line):
                    return int(found[1])
    except TimeoutError as error:
        raise ConnectFailed(f"the gateway was not ready within {start_s:.0f} s; it said: {' | '.join(said[-5:])}") from error
    raise ConnectFailed(f"the gateway did not start; it said: {' | '.join(said[-5:])}")


async def _discard(stderr: asyncio.StreamReader) -> None:
    """Pass on what it says, so that its pipe never fills."""
    while line := await stderr.readline():
        sys.stderr.write(line.decode("utf-8", "replace"))


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
