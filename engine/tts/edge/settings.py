"""What an operator may set about the edge voice."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0, le=60)]


class EdgeSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`first_audio_s` runs from the request to the first sound and counts the connection; `next_s` between two messages."""

    connect_s: Seconds = 3.0
    first_audio_s: Seconds = 5.0
    next_s: Seconds = 3.0
    streams: Annotated[int, Meta(ge=1, le=64)] = 8
    waiting: Annotated[int, Meta(ge=0, le=256)] = 16
    open_ahead: bool = True
    spare_s: Seconds = 20.0
    proxy: str = ""
