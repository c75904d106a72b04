"""What crosses between the llama.cpp worker and its parent."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from engine.api import Message, Usage


class Setup(Struct, frozen=True):
    """How the worker is started. `folder`: private, for its socket. `context_tokens`: of each slot."""

    path: str
    folder: str
    context_tokens: int
    slots: int
    threads: int


class Request(Struct, frozen=True):
    """One reply."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    top_p: float
    seed: int | None


class Piece(Struct, frozen=True):
    """Text as it comes, `n_tokens` of it. `usage` as far as it is known; `finish` in the last one."""

    text: str = ""
    n_tokens: int = 0
    usage: Usage | None = None
    finish: Literal["stop", "length"] | None = None
