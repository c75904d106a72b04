"""The tool calls of a conversation: which turn waits for which result, and which results come too late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Literal

from engine.api import ToolCall
from gateway.errors import UnknownCall

REMEMBERED = 256  # calls; older ones are told to be unknown


class Calls:
    """Ids of calls -> the turn that waits, `answered`, or `dead`."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, int | Literal["answered", "dead"]] = OrderedDict()

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._known

    def open(self, turn: int, call: ToolCall, spare_ids: Sequence[str]) -> ToolCall:
        """Note a call of a turn. An id that this conversation has seen (small models repeat themselves) is replaced by a spare one."""
        call_id = next(name for name in (call.call_id, *spare_ids) if name and name not in self._known)
        self._known[call_id] = turn
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return ToolCall(call_id=call_id, name=call.name, arguments=call.arguments)

    def answer(self, call_id: str) -> int:
        """A result has come: the turn that waits for it. Raises `UnknownCall`: never made, answered before, or its turn is gone."""
        known = self._known.get(call_id)
        if known is None:
            raise UnknownCall(f"No tool call {call_id[:80]!r} waits for a result.")
        if known == "answered":
            raise UnknownCall(f"The tool call {call_id[:80]!r} has its result already.")
        if known == "dead":
            raise UnknownCall(f"The turn of the tool call {call_id[:80]!r} is over; its result is not wanted any more.")
        self._known[call_id] = "answered"
        return known

    def drop(self, turn: int) -> None:
        """A turn ended early: what it still waited for is dead."""
        for call_id, known in self._known.items():
            if known == turn:
                self._known[call_id] = "dead"
