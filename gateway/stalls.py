"""What blocks the event loop: a thread looks at the loop's stack while the loop does not answer.

The loop itself can say only afterwards that it was late. Code that keeps the interpreter to itself (a C call that does not let go) is seen
as soon as it lets go, at the line that called it.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from pathlib import Path
from types import TracebackType

LOOK_S = 0.025
DEEPEST = 10  # innermost frames; what lies outside of them is the loop's own machinery


class StallWatch:
    """Made and left in the loop's thread. `limit_s`: silence after which the stack is taken, once for each `beat`."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._thread_id = threading.get_ident()
        self._beat_s = time.monotonic()
        self._stack: list[str] | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall watch", daemon=True)

    def __enter__(self) -> StallWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()

    def beat(self) -> list[str] | None:
        """The loop answers; the stack that kept it from doing so since the last beat, innermost frame last, where there was one."""
        stack, self._stack = self._stack, None
        self._beat_s = time.monotonic()
        return stack

    def _run(self) -> None:
        while not self._is_over.wait(LOOK_S):
            if self._stack is None and time.monotonic() - self._beat_s > self._limit_s:
                self._stack = self._taken()

    def _taken(self) -> list[str]:
        """Files, lines and functions; no values, which may be content."""
        frame = sys._current_frames().get(self._thread_id)
        frames = traceback.extract_stack(frame)[-DEEPEST:]
        return [f"{'/'.join(Path(at.filename).parts[-3:])}:{at.lineno} {at.name}" for at in frames]
