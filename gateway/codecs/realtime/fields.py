"""Typed reading of a JSON object: each wrong field is a `Fault` that names its path, what was got and what was expected.

`null` counts as absent everywhere: clients write it for their own defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from gateway.codecs.realtime.faults import Fault, Json

_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer", float: "a number"}
_T = TypeVar("_T")


class Fields:
    """One object and its path in the message."""

    def __init__(self, body: Json, path: str = "") -> None:
        self.body = body
        self.path = path

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.body.get(name) is not None

    def text(self, name: str) -> str | None:
        """Raises `Fault` where it is no string."""
        return self._typed(name, str)

    def needed_text(self, name: str) -> str:
        """Raises `Fault` where it is missing or no string."""
        return self._needed(name, self.text(name))

    def flag(self, name: str) -> bool | None:
        """Raises `Fault` where it is no boolean."""
        return self._typed(name, bool)

    def number(self, name: str) -> float | None:
        """Raises `Fault` where it is no number."""
        value = self.body.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(self.at(name), value, "a number")
        return float(value)

    def number_within(self, name: str, low: float, high: float) -> float | None:
        """Raises `Fault` where it is no number, or outside the bounds."""
        value = self.number(name)
        if value is not None and not low <= value <= high:
            raise Fault(f"{self.at(name)} is {value:g}; expected {low:g} to {high:g}.", "invalid_value", self.at(name))
        return value

    def needed_number(self, name: str) -> float:
        """Raises `Fault` where it is missing or no number."""
        return self._needed(name, self.number(name))

    def choice(self, name: str, allowed: Sequence[str]) -> str | None:
        """Raises `Fault` where it is none of them."""
        value = self.text(name)
        if value is not None and value not in allowed:
            raise Fault(f"{self.at(name)} is {value[:80]!r}; expected one of: {', '.join(allowed)}.", "invalid_value", self.at(name))
        return value

    def object(self, name: str) -> Fields | None:
        """A nested object. Raises `Fault` where it is none."""
        value = self._typed(name, dict)
        return None if value is None else Fields(value, self.at(name))

    def needed_object(self, name: str) -> Fields:
        """Raises `Fault` where it is missing or no object."""
        return self._needed(name, self.object(name))

    def objects(self, name: str, most: int) -> list[Fields] | None:
        """An array of objects, `most` at most. Raises `Fault`."""
        value = self._typed(name, list)
        if value is None:
            return None
        if len(value) > most:
            raise Fault(f"{self.at(name)} has {len(value)} entries; expected at most {most}.", "array_above_max_length", self.at(name))
        return list(self._objects(name, value))

    def _objects(self, name: str, value: list[Any]) -> Iterator[Fields]:  # Any: JSON
        for index, one in enumerate(value):
            path = f"{self.at(name)}[{index}]"
            if not isinstance(one, dict):
                raise wrong_type(path, one, "an object")
            yield Fields(one, path)

    def _typed(self, name: str, kind: type[_T]) -> _T | None:
        value = self.body.get(name)
        if value is None or (isinstance(value, kind) and (kind is bool or not isinstance(value, bool))):
            return value
        raise wrong_type(self.at(name), value, _NAMES[kind])

    def _needed(self, name: str, value: _T | None) -> _T:
        if value is None:
            raise Fault(f"Missing required parameter: '{self.at(name)}'.", "missing_required_parameter", self.at(name))
        return value


def wrong_type(path: str, value: object, expected: str) -> Fault:
    """The fault of a value of another type."""
    return Fault(f"{path} is {_NAMES.get(type(value), 'null')}; expected {expected}.", "invalid_type", path)
