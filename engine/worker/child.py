"""A worker's main program: load the stage, say so, then take requests until the parent goes away.

Three kinds of thread: the reader (main program's socket), the stage's own, and the loader, which is the main thread. The
reader also answers heartbeats, so a heartbeat proves that the process still runs Python, not that a step moves: for that the parent
watches each request.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from engine.api import EngineSetupError
from engine.worker.frames import Frame, FrameReader, Kind, encode
from engine.worker.jobs import JobQueue, Stage

_READ_BYTES = 1 << 16
_PR_SET_PDEATHSIG = 1  # prctl(2)


class Channel:
    """The child's end of the socket pair, safe to write to from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._reader = FrameReader()

    def send(self, kind: Kind, number: int = 0, body: Any = None) -> None:  # Any: whatever msgpack holds
        """Write a frame; waits while the parent does not read. Ends the process if the parent is gone."""
        data = encode(kind, number, body)
        with self._lock:
            try:
                self._connection.sendall(data)
            except OSError:
                os._exit(0)

    def frames(self) -> Iterator[Frame]:
        """Frames until the parent closes its end."""
        while data := self._connection.recv(_READ_BYTES):
            yield from self._reader.feed(data)


def main() -> None:
    """Run the stage that `argv` names ("module:factory") over the inherited socket that it numbers."""
    parent, descriptor, factory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    _die_with(parent)
    channel = Channel(socket.socket(fileno=descriptor))
    frames = channel.frames()
    _, _, setup = next(frames)
    inbox = _Inbox(channel)
    threading.Thread(target=inbox.read, args=(frames,), name="reader", daemon=True).start()
    stage = _load(channel, factory, setup)
    jobs = JobQueue(stage, channel.send)
    inbox.jobs = jobs
    channel.send(Kind.READY, 0, stage.describe())
    for index in range(1, stage.concurrency):
        threading.Thread(target=jobs.run, name=f"stage-{index}", daemon=True).start()
    jobs.run()


class _Inbox:
    """What the reader thread does with a frame. Requests come only after READY, when `jobs` is set."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.jobs: JobQueue | None = None

    def read(self, frames: Iterator[Frame]) -> None:
        """Take frames until the parent is gone; then nothing here is worth keeping, and a stage in C may never return."""
        try:
            for kind, number, body in frames:
                self._take(kind, number, body)
        except Exception:  # the thread's owner: without a reader the process is deaf
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def _take(self, kind: Kind, number: int, body: Any) -> None:  # Any: the stage's own message
        if kind is Kind.PING:
            self._channel.send(Kind.PONG)
        elif self.jobs is None:
            raise AssertionError(f"{kind.name} came before READY was sent")
        elif kind is Kind.OPEN:
            self.jobs.open(number, body["priority"], body["body"])
        elif kind is Kind.CANCEL:
            self.jobs.cancel(number)


def _load(channel: Channel, factory: str, setup: Any) -> Stage:  # Any: the stage's own settings
    module, _, name = factory.partition(":")
    try:
        stage: Stage = getattr(importlib.import_module(module), name)(setup)
        return stage
    except EngineSetupError as error:
        reason = str(error)
    except Exception as error:  # the process's owner: the parent tells the operator
        reason = f"{type(error).__name__}: {error}"
    channel.send(Kind.FAILED, 0, reason)
    os._exit(1)


def _die_with(parent: int) -> None:
    """Be killed when the parent dies, also by SIGKILL and also while a C library holds the interpreter (Linux; elsewhere end of file)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle: it drains first
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)  # it died before the call above


if __name__ == "__main__":
    main()
