"""How many places each worker's sessions take, in memory that all of them see.

One row a worker, which it alone writes, so nothing is locked. Two workers that let somebody in at the same moment may both find the last
place free: at most one conversation too many for each worker.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

_ROW = struct.Struct("=qqq")  # connected, away, restarts


def lay_out(path: Path, count: int) -> None:
    """A file for so many workers, with nobody in."""
    path.write_bytes(bytes(_ROW.size * count))


class SharedPlaces:
    """The row of `number` in the file at `path`, and a view of the others'."""

    def __init__(self, path: Path, number: int, count: int) -> None:
        self._number, self._count = number, count
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _ROW.size * count)

    def tell(self, connected: int, away: int) -> None:
        """What this worker holds now."""
        _ROW.pack_into(self._memory, self._at(self._number), connected, away, self.n_restarts)

    def others(self) -> tuple[int, int]:
        """Connected and away, over all other workers."""
        rows = [_ROW.unpack_from(self._memory, self._at(number)) for number in range(self._count) if number != self._number]
        return sum(row[0] for row in rows), sum(row[1] for row in rows)

    @property
    def n_restarts(self) -> int:
        """How often this worker was started again."""
        restarts: int = _ROW.unpack_from(self._memory, self._at(self._number))[2]
        return restarts

    def clear(self) -> None:
        """It has died, with all its sessions; another one takes its row."""
        _ROW.pack_into(self._memory, self._at(self._number), 0, 0, self.n_restarts + 1)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()

    def _at(self, number: int) -> int:
        return number * _ROW.size
