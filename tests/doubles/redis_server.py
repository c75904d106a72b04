"""A real Redis of a test's own, on a Unix socket; it can be stopped in the middle, and come back empty."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ops.tools import program

READY_S = 60.0


class RedisServer:
    """`url` is what `session.store_url` takes."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"unix://{self._path}"

    def start(self) -> None:
        """Begin, empty; returns when it answers."""
        command = ["redis-server", "--port", "0", "--unixsocket", str(self._path), "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self._path.parent)
        ends_at = time.monotonic() + READY_S
        while not self._answers():
            if time.monotonic() > ends_at or self._process.poll() is not None:
                raise AssertionError("redis-server did not start")
            time.sleep(0.02)

    def hang(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """It answers again."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, with all that it held."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._path.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "it runs"
        self._process.send_signal(number)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            client.connect(str(self._path))
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")
        return False


@contextlib.contextmanager
def redis_server() -> Iterator[RedisServer]:
    """A running one. Skips the test loudly where the program is missing."""
    program("redis-server", "Debian: apt-get install redis-server")
    with tempfile.TemporaryDirectory(prefix="stretto-redis-") as folder:  # short: the path of a Unix socket has 107 bytes
        server = RedisServer(Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.kill()
