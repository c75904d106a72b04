"""One child process from its birth to its burial: spawn, frames in and out, its standard error, its end.

Spawned with `subprocess`, not forked: the parent has an event loop and threads. Nothing here restarts anything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from engine.inherited import inherited
from engine.worker.frames import BrokenStream, Frame, FrameReader, Kind, encode

log = logging.getLogger(__name__)

_POLL_S = 0.01  # waiting for an exit: no signal handler, no thread, and a hundredth of a second is soon enough
_LEAVE_S = 0.5  # a child ends at once on end of file; longer means that it cannot
_TERMINATE_S = 1.0
_KILL_S = 2.0  # after SIGKILL only the kernel can be late
_LAST_WORDS_S = 0.2
_LINE_CHARACTERS = 500
_KEPT_LINES = 20


class Process:
    """A running child. `on_frame` and `on_lost` are called on the event loop; `on_lost` once, when its end of the socket closes."""

    def __init__(self, name: str, popen: subprocess.Popen[bytes], on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self.name = name
        self.last_words: deque[str] = deque(maxlen=_KEPT_LINES)
        self._popen = popen
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.WriteTransport | None = None
        self._errors: asyncio.ReadTransport | None = None
        self._silent = asyncio.Event()  # its standard error is read to the end

    @property
    def pid(self) -> int:
        return self._popen.pid

    @classmethod
    async def spawn(
        cls, name: str, factory: str, setup: Any, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]
    ) -> Process:  # Any: the stage's own settings
        """A child that loads `factory` ("module:callable") with `setup`. A cancel leaves no process behind."""
        ours, theirs = socket.socketpair()
        with theirs:
            popen = subprocess.Popen(  # noqa: ASYNC220  vfork and exec, some milliseconds; asyncio's own needs a child watcher
                [sys.executable, "-P", "-m", "engine.worker.child", str(os.getpid()), str(theirs.fileno()), factory],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is for the parent
                env={**inherited(), "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            )
        process = cls(name, popen, on_frame, on_lost)
        try:
            await process._connect(ours, setup)
        except BaseException:
            ours.close()
            await process.stop()
            raise
        return process

    async def _connect(self, ours: socket.socket, setup: Any) -> None:  # Any: the stage's own settings
        loop = asyncio.get_running_loop()
        assert self._popen.stdout is not None, "the pipe was asked for above"
        errors, _ = await loop.connect_read_pipe(lambda: _Lines(self._on_line, self._silent.set), self._popen.stdout)
        self._errors = errors
        transport, _ = await loop.create_unix_connection(lambda: _Frames(self._on_frame, self._on_lost), sock=ours)
        self._transport = cast(asyncio.WriteTransport, transport)
        self.send(Kind.SETUP, 0, setup)

    def send(self, kind: Kind, number: int = 0, body: Any = None) -> None:  # Any: whatever msgpack holds
        """Write a frame without waiting; what stands in the buffer is bounded by the number of open requests."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(encode(kind, number, body))

    def describe_end(self) -> str:
        """How it ended and the last line it wrote, for the operator. Only after `stop`."""
        code = self._popen.returncode
        end = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        return f"{end}; its last words: {self.last_words[-1]}" if self.last_words else end

    def kill(self) -> None:
        """End it now, whatever it does: for a child that hangs."""
        self._popen.kill()

    async def stop(self) -> None:
        """Close its socket, then terminate, then kill: at most 3.5 s, no zombie left. A cancel kills at once."""
        if self._transport is not None:
            self._transport.abort()
        try:
            if not await self._wait(_LEAVE_S):
                self._popen.terminate()
                if not await self._wait(_TERMINATE_S):
                    self._popen.kill()
                    await self._wait(_KILL_S)
            await self._hear_last_words()
        finally:
            self._bury()

    async def _wait(self, seconds: float) -> bool:
        deadline = asyncio.get_running_loop().time() + seconds
        while self._popen.poll() is None:
            if asyncio.get_running_loop().time() >= deadline:
                return False
            await asyncio.sleep(_POLL_S)
        return True

    async def _hear_last_words(self) -> None:
        """Its standard error to the end, or as much as comes in time: a grandchild may hold the pipe open."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._silent.wait()
        except TimeoutError:
            pass

    def _bury(self) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait(_KILL_S)
        if self._errors is not None:
            self._errors.close()
        elif self._popen.stdout is not None:
            self._popen.stdout.close()

    def _on_line(self, line: str) -> None:
        self.last_words.append(line)
        log.info("worker wrote", extra={"worker": self.name, "line": line})


class _Frames(asyncio.Protocol):
    """Bytes from the child to frames."""

    def __init__(self, on_frame: Callable[[Frame], None], on_lost: Callable[[], None]) -> None:
        self._reader = FrameReader()
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except BrokenStream as error:
            log.error("worker sent no frame", extra={"reason": str(error)})
            assert self._transport is not None, "data comes after the connection"
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()


class _Lines(asyncio.Protocol):
    """What the child prints, line by line."""

    def __init__(self, on_line: Callable[[str], None], on_end: Callable[[], None]) -> None:
        self._on_line = on_line
        self._on_end = on_end
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_LINE_CHARACTERS:]
        for line in lines:
            if line.strip():
                self._on_line(line.decode("utf-8", "replace")[:_LINE_CHARACTERS])

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end()
