"""How an engine says that it lives."""

from __future__ import annotations

from msgspec import Struct


class Health(Struct, frozen=True, kw_only=True):
    """Whether requests are accepted, and a word for the operator."""

    ready: bool
    detail: str
