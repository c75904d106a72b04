"""How a feeling and a user's wishes become what a voice can do. Pure.

Decides rate, pitch, loudness, the voice's own style name and instructions for one segment, all inside bounds in which a
voice stays a voice. Knows no engine: each renders the result in its own words, and all apply `volume` to the PCM. Assumes that
the emotion's name is one of the closed vocabulary; an unknown one is neutral.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from engine.api import Style

# Bounds of the sum of user setting and emotion. Beyond them neural voices slur or squeak; loudness is bounded so that nobody is hurt.
RATE_BOUNDS = (0.5, 2.0)
PITCH_BOUNDS_ST = (-6.0, 6.0)
VOLUME_BOUNDS = (0.1, 2.0)

Factor = Annotated[float, Meta(ge=0.5, le=2.0)]
Semitones = Annotated[float, Meta(ge=-6.0, le=6.0)]
Decibels = Annotated[float, Meta(ge=-24.0, le=12.0)]


class EmotionChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a feeling does to a voice at full strength. `instructions`: the same in words, for voices that read them."""

    rate: Factor = 1.0
    pitch_st: Semitones = 0.0
    volume: Factor = 1.0
    instructions: str = ""


class VoiceManner(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is particular to a voice.

    `gain_db`: brings it to the loudness of the others. `strength`: 0 leaves feelings out, 1 takes them whole. `styles`: its own
    names for feelings. `base_hz`: its usual pitch, for engines that count pitch in hertz.
    """

    gain_db: Decibels = 0.0
    strength: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    base_hz: Annotated[float, Meta(ge=50.0, le=500.0)] = 180.0
    styles: dict[str, str] = {}


def resolve(style: Style, manner: VoiceManner, emotions: Mapping[str, EmotionChange]) -> Style:
    """What is asked of the voice: emotion times strength on top of the user's wish, inside the bounds; `volume` holds its gain.

    A voice with an own style for the feeling gets that instead of changed pitch and rate: both would overdo it. The result is not to
    be resolved again.
    """
    emotion = style.emotion or "neutral"
    change = emotions.get(emotion, EmotionChange())
    strength = 0.0 if emotion in manner.styles else manner.strength
    return Style(
        emotion=style.emotion,
        rate=_bound(style.rate * change.rate**strength, RATE_BOUNDS),
        pitch_st=_bound(style.pitch_st + change.pitch_st * strength, PITCH_BOUNDS_ST),
        volume=_bound(style.volume * change.volume**strength, VOLUME_BOUNDS) * 10 ** (manner.gain_db / 20),
    )


def _bound(value: float, bounds: tuple[float, float]) -> float:
    """Inside the bounds; what is no number comes from a client and counts as no wish."""
    low, high = bounds
    if value != value:
        return 1.0 if low > 0 else 0.0
    return max(low, min(high, value))
