"""What the adapter needs to know about its servers."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from engine.llm.openai.endpoints import Endpoint

Dialect = Literal["openai", "vllm"]


class ChatServers(Struct, frozen=True, kw_only=True):
    """Servers of the same model.

    `dialect` vllm: priority, cache salt and running token counts are sent and asked for, which others refuse. `first_s`: to the first
    piece of the reply, per attempt; `next_s`: between pieces. `extra` goes into every request as it is. `key_variable` is for messages.
    """

    endpoints: tuple[Endpoint, ...]
    model: str
    dialect: Dialect = "openai"
    api_key: str = ""
    key_variable: str = ""
    connect_s: float = 2.0
    first_s: float = 8.0
    next_s: float = 8.0
    start_s: float = 30.0
    extra: dict[str, Any] = {}  # Any: JSON
