"""Work that a conversation leaves to a thread: traces to send, lines to write. The loop never waits for it.

Bounded by a number of items. A full backlog refuses the newest item, and the caller counts it: what hangs behind it (a collector, a disk)
costs records, never a listener's time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
BATCH = 256  # items that are handed over at once

log = logging.getLogger("stretto.backlog")


class Backlog(Generic[T]):
    """One thread that hands items to `work`, oldest first, in batches that gather for `pause_s`."""

    def __init__(self, name: str, most: int, work: Callable[[list[T]], object], pause_s: float) -> None:
        self._name, self._most, self._work, self._pause_s = name, most, work, pause_s
        self._items: deque[T] = deque()
        self._n_taken = 0  # handed to `work`, which has not returned yet
        self._filled = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)  # a process that ends does not wait for a collector
        self._thread.start()

    def put(self, item: T) -> bool:
        """Take an item; False where there is no room (or after `close`). Never waits."""
        if len(self._items) >= self._most or self._closing.is_set():
            return False
        self._items.append(item)
        self._filled.set()
        return True

    def close(self, deadline_s: float) -> int:
        """Work off what is there, for `deadline_s` at most; blocks as long. The number of items that were left behind."""
        self._closing.set()
        self._filled.set()
        self._thread.join(deadline_s)
        return len(self._items) + self._n_taken

    def _run(self) -> None:
        while not (self._closing.is_set() and not self._items):
            self._filled.wait()
            self._closing.wait(self._pause_s)
            self._filled.clear()
            while self._items:
                batch = [self._items.popleft() for _ in range(min(BATCH, len(self._items)))]
                self._n_taken = len(batch)
                try:
                    self._work(batch)
                except Exception:  # its owner: one bad batch must not end the book-keeping
                    log.exception("backlog failed", extra={"backlog": self._name, "n_items": len(batch)})
                self._n_taken = 0
