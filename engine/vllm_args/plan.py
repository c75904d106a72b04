"""What to run, and how: the last form of the settings before vLLM."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Device = Literal["cuda", "cpu"]


class Plan(Struct, frozen=True, kw_only=True):
    """`arguments` of `AsyncEngineArgs` (`optional` ones are left out where the installed vLLM lacks them), `environment` set before vLLM is
    imported, `template` options of the chat template, `sampling` defaults that a request may not set.
    `tool_call_parser` is one of vLLM's; None: the chat template tells."""

    model: str
    device: Device = "cuda"
    arguments: dict[str, Any]  # Any: values of vLLM's own types
    optional: frozenset[str] = frozenset()
    environment: dict[str, str] = {}
    template: dict[str, Any] = {}
    sampling: dict[str, Any] = {}
    tool_call_parser: str | None = None
    open_requests: int = 256
    canary_s: float = 15.0
    hung_s: float = 20.0

    @property
    def keeps_prefixes(self) -> bool:
        """Whether the engine has a prefix cache."""
        return bool(self.arguments.get("enable_prefix_caching"))
