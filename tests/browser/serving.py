"""A gateway process with scripted engines, as a user would start it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.running import BUSY, STOP_S

ROOT = Path(__file__).parents[2]
REPLY = "The sea covers most of our planet, and we know little of it. Its deepest valley lies eleven kilometers down."
COMMAND = ("-m", "gateway", "serve", "--engines", "fake", "--port", "0")


@contextmanager
def gateway(**environment: str) -> Iterator[int]:
    """A running gateway; gives its port. Raises `RuntimeError` with what it said when it does not start."""
    settings = {**BUSY, "STRETTO_FAKE__REPLY": REPLY, "STRETTO_SERVER__DRAIN_S": "1", **environment}
    process = subprocess.Popen([sys.executable, *COMMAND], cwd=ROOT, env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None, "Popen was given a pipe"
    try:
        with process.stderr:
            yield _port(process.stderr)
    finally:
        process.terminate()
        process.wait(STOP_S)


def _port(lines: Iterator[str]) -> int:
    said = []
    for line in lines:
        said.append(line)
        if match := re.search(r"ready: https?://[^:]+:(\d+)/", line):
            return int(match[1])
    raise RuntimeError("the gateway did not start:\n" + "".join(said))
