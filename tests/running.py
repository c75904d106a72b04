"""A gateway as its users run it: its own process, a real socket, any settings."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.session.virtual_loop import WatchedLoop

BUSY = {  # limits that a busy machine would run into by itself
    "STRETTO_SHEDDING__LAG_MS": "0",
    "STRETTO_SESSION__HANDSHAKE_S": "60",
    "STRETTO_SERVER__REQUEST_S": "60",
}
READY_S = 90.0  # two busy cores; it is a second on a quiet machine
STOP_S = 60.0  # a drain has its own, shorter bound


class Running:
    """The process, its address, and what it printed."""

    def __init__(self, process: subprocess.Popen[str], port: int, lines: list[str]) -> None:
        self.process = process
        self.port = port
        self.lines = lines

    @property
    def voice_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/voice"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def order(self, line: str) -> None:
        """Tell a program that `takes_orders`."""
        assert self.process.stdin is not None, "it takes orders"
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal it and wait; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_S)
        finally:
            WatchedLoop.forgive()


@contextlib.contextmanager
def gateway(
    settings: Mapping[str, str] | None = None,
    *arguments: str,
    python: str = sys.executable,
    module: str = "gateway",
    takes_orders: bool = False,
) -> Iterator[Running]:
    """A running gateway; `settings` are environment variables (`STRETTO_SECTION__KEY`). Fake engines unless they say otherwise.

    `module`: another program than the gateway's own command, without arguments; `takes_orders`: by its standard input.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STRETTO_") or name == "STRETTO_CACHE_DIR"}
    environment |= {"PYTHONUNBUFFERED": "1", **BUSY, **(settings or {})}
    engines = [] if "STRETTO_LLM__ENGINE" in environment else ["--engines", "fake"]
    command = [python, "-m", module, *(["serve", "--port", "0", *engines, *arguments] if module == "gateway" else [])]
    root = Path(__file__).parents[1]
    stdin = subprocess.PIPE if takes_orders else None
    process = subprocess.Popen(
        command, env=environment, cwd=root, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None, "stderr is a pipe"
    lines: list[str] = []
    ready = threading.Event()
    reader = threading.Thread(target=_read, args=(process.stderr, lines, ready), daemon=True)
    reader.start()
    try:
        if not ready.wait(READY_S):
            raise AssertionError(f"the gateway was not ready within {READY_S} s; it printed:\n" + "".join(lines))
        found = next((match for line in lines if (match := re.search(r"^ready: \S+:(\d+)/", line))), None)
        if found is None:
            raise AssertionError(f"the gateway ended with {process.wait()}; it printed:\n" + "".join(lines))
        WatchedLoop.forgive()
        yield Running(process, int(found[1]), lines)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        reader.join(5)
        WatchedLoop.forgive()
        process.stderr.close()
        if process.stdin is not None:
            process.stdin.close()


def _read(stream: object, lines: list[str], ready: threading.Event) -> None:
    for line in stream:  # type: ignore[attr-defined]  # a text stream; Popen types it loosely
        lines.append(line)
        if line.startswith("ready: "):
            ready.set()
    ready.set()
