"""Which of the workers a process is, and where it finds the others."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class Worker(Struct, frozen=True, kw_only=True):
    """Number `number`, from 0, of `count`. `folder`: the row's own, which only its user may read; whoever reaches it is trusted."""

    number: int
    count: int
    folder: Path

    def socket(self, number: int) -> Path:
        """Where that worker answers, once it is ready."""
        return self.folder / f"{number}.sock"

    @property
    def book(self) -> Path:
        """Where the parent answers for the keys."""
        return self.folder / "book.sock"

    @property
    def places(self) -> Path:
        """The file of shared counts."""
        return self.folder / "places"

    @property
    def crowds(self) -> Path:
        """The file of the addresses' sockets."""
        return self.folder / "crowds"

    @property
    def others(self) -> list[int]:
        """The numbers of all others."""
        return [number for number in range(self.count) if number != self.number]
