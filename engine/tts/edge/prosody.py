"""Prosody in the words of the edge service: percent and hertz, relative to the voice. Pure."""

from __future__ import annotations

from msgspec import Struct

from engine.api import Style


class EdgeProsody(Struct, frozen=True):
    """The attributes of its one `prosody` element; the service reads no style names."""

    rate: str = "+0%"
    pitch: str = "+0Hz"
    volume: str = "+0%"


def render(style: Style, base_hz: float, with_volume: bool) -> EdgeProsody:
    """`with_volume` only when its MP3 goes to the listener untouched: else loudness is set on the PCM, for all voices alike."""
    hertz = base_hz * (2 ** (style.pitch_st / 12) - 1)
    percent = min(style.volume, 2.0) - 1 if with_volume else 0.0
    return EdgeProsody(_signed(100 * (style.rate - 1), "%"), _signed(hertz, "Hz"), _signed(100 * percent, "%"))


def _signed(value: float, unit: str) -> str:
    return f"{round(value):+d}{unit}"
