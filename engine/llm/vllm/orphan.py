"""The engine core ends when its gateway does, even if the gateway was killed and could say nothing.

vLLM's engine core outlives a parent that gets SIGKILL and keeps the GPU's memory (seen in 0.32). vLLM loads this module in each of
its processes as a plugin (entry point `vllm.general_plugins` in `pyproject.toml`); there it waits for the parent's end.
Does nothing in a process that Stretto did not start.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import wait

VARIABLE = "STRETTO_ENGINE_FOLLOWS_PARENT"
_GRACE_S = 5.0  # vLLM's own shutdown takes two to three


def follow_parent() -> None:
    """Start waiting for the parent's end, in a thread. The plugin's entry; vLLM may call it more than once."""
    parent = multiprocessing.parent_process()
    if parent is None or os.environ.get(VARIABLE) != "1" or any(thread.name == VARIABLE for thread in threading.enumerate()):
        return
    threading.Thread(target=_end_with, args=(parent.sentinel,), name=VARIABLE, daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)
