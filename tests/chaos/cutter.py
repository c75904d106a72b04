"""A relay in front of the gateway that cuts connections anywhere."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Cutter:
    """A relay in front of the gateway that can cut every connection at a byte of its own choice."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._left: dict[asyncio.Task[None], int | None] = {}
        self.n_cut = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its address."""
        async with asyncio.TaskGroup() as tasks:

            def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._left[tasks.create_task(self._relay(reader, writer), name="relay")] = None

            server = await asyncio.start_server(begin, "127.0.0.1", 0)
            async with server:
                yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/voice"
                for task in self._left:
                    task.cancel()

    def cut(self) -> None:
        """Each open connection ends within its next some thousand bytes, in the middle of whatever passes there."""
        for task in self._left:
            self._left[task] = random.randrange(1, 6000)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "it runs"
        try:
            from_gateway, to_gateway = await asyncio.open_connection("127.0.0.1", self._port)
            async with asyncio.TaskGroup() as tasks:
                ways = [
                    tasks.create_task(self._pass(reader, to_gateway, task), name="up"),
                    tasks.create_task(self._pass(from_gateway, writer, task), name="down"),
                ]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()
            to_gateway.transport.abort()
        except OSError:  # the gateway has ended
            pass
        finally:
            writer.transport.abort()
            del self._left[task]

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        with suppress(OSError):
            while data := await reader.read(4096):
                left = self._left[task]
                if left is not None:
                    data, self._left[task] = data[:left], left - len(data)
                writer.write(data)
                await writer.drain()
                if left is not None and left <= len(data):
                    self.n_cut += 1
                    return
