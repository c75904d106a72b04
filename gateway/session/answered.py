"""Which messages of a client were acted on already: one that comes again, right after a reconnect, is not done twice."""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 256  # a client that repeats a message does so right after a reconnect


class Answered:
    """The newest ids, oldest first. `n_changes` counts up."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()
        self.n_changes = 0

    def is_new(self, message_id: str) -> bool:
        """Whether this id was not seen; it is from now on."""
        if message_id in self._ids:
            return False
        self._ids[message_id] = None
        self.n_changes += 1
        if len(self._ids) > REMEMBERED:
            self._ids.popitem(last=False)
        return True

    def ids(self) -> tuple[str, ...]:
        """All that are remembered, oldest first."""
        return tuple(self._ids)
