"""How many sockets each address holds open at each worker, and conversations each key, in memory that all of them see.

One row a worker, which it alone writes, so nothing is locked: two workers that let an address in at the same moment may both find its last
place free. A row has no room for every address there is: each is counted in `DEPTH` cells, and the least of them is what it holds, or more
where others share all of its cells. Which cells those are depends on a key of this row's own, so nobody can choose a neighbor.
Source: Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch", 2005.
"""

from __future__ import annotations

import hashlib
import mmap
import secrets
import struct
from pathlib import Path

KINDS = ("socket", "client", "scrape", "key")  # each counted in cells of its own: one's crowd must not look like another's
DEPTH = 4
CELLS = 16_384  # of each; where a worker knows 2,000 addresses, one in 5,000 strangers would find sockets in all four of its own
_KEY_BYTES = 32
_KIND_CELLS = DEPTH * CELLS
_ROW_BYTES = 4 * len(KINDS) * _KIND_CELLS
_PICKS = struct.Struct(f"={DEPTH}I")


def lay_out(path: Path, count: int) -> None:
    """A file for so many workers, with nobody in. It takes room as addresses come."""
    with path.open("wb") as file:
        file.write(secrets.token_bytes(_KEY_BYTES))
        file.truncate(_KEY_BYTES + count * _ROW_BYTES)


class SharedCrowds:
    """The row of `number` in the file at `path`, and a view of the others'."""

    def __init__(self, path: Path, number: int, count: int) -> None:
        self._number, self._count = number, count
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _KEY_BYTES + count * _ROW_BYTES)
        self._key = self._memory[:_KEY_BYTES]
        self._cells = memoryview(self._memory).cast("I")  # each is read and written at once

    def of(self, kind: str) -> SharedCrowd:
        """What is of one of `KINDS`."""
        return SharedCrowd(self, KINDS.index(kind) * _KIND_CELLS)

    def tell(self, first: int, name: str, change: int) -> None:
        """This worker holds so many more, or less. `first`: cell of the kind in each row."""
        row = self._row(self._number) + first
        for pick in self._picked(name):
            self._cells[row + pick] += change

    def others(self, first: int, name: str) -> int:
        """What all other workers hold."""
        picks = self._picked(name)
        rows = (self._row(number) + first for number in range(self._count) if number != self._number)
        return sum(min(self._cells[row + pick] for pick in picks) for row in rows)

    def clear(self) -> None:
        """It has died, with all its sockets; another one takes its row."""
        first = 4 * self._row(self._number)
        self._memory[first : first + _ROW_BYTES] = bytes(_ROW_BYTES)

    def close(self) -> None:
        """Let go of the memory."""
        self._cells.release()
        self._memory.close()

    def _row(self, number: int) -> int:
        return (_KEY_BYTES + number * _ROW_BYTES) // 4

    def _picked(self, name: str) -> list[int]:
        picks = _PICKS.unpack(hashlib.blake2b(name.encode(), digest_size=_PICKS.size, key=self._key).digest())
        return [depth * CELLS + pick % CELLS for depth, pick in enumerate(picks)]


class SharedCrowd:
    """`admission.Elsewhere` for one kind."""

    def __init__(self, crowds: SharedCrowds, first: int) -> None:
        self._crowds, self._first = crowds, first

    def tell(self, name: str, change: int) -> None:
        """As promised."""
        self._crowds.tell(self._first, name, change)

    def others(self, name: str) -> int:
        """As promised."""
        return self._crowds.others(self._first, name)
