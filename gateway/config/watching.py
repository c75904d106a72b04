"""Settings of what watches conversations, and of what products hook into them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class TracingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace of every turn, sent by OTLP."""

    endpoint: str = ""
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service: str = "stretto"
