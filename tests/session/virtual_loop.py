"""Event loops for tests: one with virtual time, and one that notices when something blocks it.

`VirtualLoop.time()` stands still while callbacks run and jumps to the next timer when nothing else is left to do: a
conversation of minutes runs in milliseconds, the same way every time. Everything on top works unchanged (`asyncio.sleep`,
`timeout`, `call_later`, queues). Sockets and threads work too: a file descriptor that is ready comes before a jump,
and while a call to a thread is out the loop waits for it in real time.
When every task waits and no timer is set, nothing can ever happen again: `VirtualTimeStuck` names who waits for what.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

REAL_WAIT_S = 30.0  # for a call in a thread; the test's own time limit is the usual end
_LOOK_S = 0.2  # a look at the kernel's counters costs more than a turn of the loop
START_S = 1000.0  # not 0: code that takes 0 for "never" must not pass by accident


class VirtualTimeStuck(Exception):
    """Every task waits and nothing is scheduled that could wake one."""


class WatchedSelector(selectors.BaseSelector):
    """A selector that measures how long the loop stays away from it: the time that callbacks block the loop.

    While a busy machine gives the loop no core, no callback blocks it: that time does not count.
    """

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self._left_s: float | None = None
        self._looked_s, self._held_s = 0.0, 0.0
        self.longest_block_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self._left_s is not None and (block_s := time.monotonic() - self._left_s) > self.longest_block_s:
            self.longest_block_s = max(self.longest_block_s, block_s - (held_up_s() - self._held_s))
        events = self.wait(timeout)
        self._left_s = time.monotonic()
        if self._left_s - self._looked_s > _LOOK_S:
            self._looked_s, self._held_s = self._left_s, held_up_s()
        return events

    def wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        return self._real.select(timeout)

    def pause(self) -> None:
        """The loop stops running: what comes now is not a block."""
        self._left_s = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # Any: typeshed's own signature
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:  # Any: typeshed's own signature
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:  # Any: typeshed's own signature
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:  # Any: typeshed's own signature
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


def held_up_s() -> float:
    """How long this thread was ready to run and had no core, and the machine below took the cores away, until now. 0 where unknown."""
    try:
        waited_s = int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
        stolen_s = int(Path("/proc/stat").read_text().split("\n", 1)[0].split()[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0
    return waited_s + stolen_s


class WatchedLoop(asyncio.SelectorEventLoop):
    """asyncio's loop, with `longest_block_s` since it was made."""

    def __init__(self, selector: WatchedSelector | None = None) -> None:
        self.watch = selector or WatchedSelector()
        super().__init__(self.watch)

    @property
    def longest_block_s(self) -> float:
        return self.watch.longest_block_s

    @staticmethod
    def forgive() -> None:
        """The block that just was is meant: the test waited for another process. Without a watched loop nothing happens."""
        with contextlib.suppress(RuntimeError):
            if isinstance(loop := asyncio.get_running_loop(), WatchedLoop):
                loop.watch.pause()

    def run_forever(self) -> None:
        try:
            super().run_forever()
        finally:
            self.watch.pause()


class _VirtualSelector(WatchedSelector):
    """Jumps instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = START_S
        self.n_threads_out = 0
        self.explain: Callable[[], str] = lambda: ""

    def wait(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().wait(0)
        if events or timeout == 0:
            return events
        if self.n_threads_out:
            return super().wait(REAL_WAIT_S)
        if timeout is None:
            raise VirtualTimeStuck(self.explain())
        self.now_s += timeout
        return []


class VirtualLoop(WatchedLoop):
    """A loop whose time is virtual; see the module."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        self._virtual.explain = self._who_waits
        self._clock_resolution = 1e-6  # sums of floats may fall a hair short of the timer they jump to

    def time(self) -> float:
        return self._virtual.now_s

    def run_in_executor(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # Any: typeshed uses TypeVarTuple
        self._virtual.n_threads_out += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._on_thread_back)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self._virtual.n_threads_out += 1  # the thread that joins the executor's threads
        try:
            await super().shutdown_default_executor()
        finally:
            self._virtual.n_threads_out -= 1

    def _on_thread_back(self, _: object) -> None:
        self._virtual.n_threads_out -= 1

    def _who_waits(self) -> str:
        lines = [f"virtual time stands at {self.time() - START_S:.3f} s: every task waits and no timer is set"]
        for task in asyncio.all_tasks(self):
            stack = task.get_stack(limit=1)
            place = f"{stack[0].f_code.co_filename}:{stack[0].f_lineno}" if stack else "not started"
            lines.append(f"  {task.get_name()} waits at {place}: {task.get_coro()!r}")
        return "\n".join(lines)
