"""What a session may ask of its endpointing, and what its numbers then are.

Pure. A wish is kept inside bounds in which a conversation stays one; a wish that means nothing is refused. What is absent is the gateway's
own. `eagerness` moves the waits of somebody who may not have finished; one who surely has is waited for longer by the patient alone.
"""

from __future__ import annotations

import math

from msgspec import structs

from gateway.config import EndpointingSettings
from gateway.errors import BadMessage
from gateway.events import Eagerness, Endpointing

LONGEST_SILENCE_MS = 5000  # nobody waits longer for an answer; the listener keeps so much sound behind an utterance
SHORTEST_SILENCE_MS = 100  # words have pauses as long
LONGEST_PREROLL_MS = 2000
PROBABILITIES = (0.1, 0.95)  # beyond them everything is speech, or nothing
IDLE_MS = (1000, 600_000)
_HYSTERESIS = 0.15  # Silero's own distance between the beginning of speech and its end
_FACTORS: dict[Eagerness, tuple[float, float]] = {"low": (2.0, 2.0), "medium": (1.0, 1.0), "auto": (1.0, 1.0), "high": (1.0, 0.5)}
"""(a sure end, an unsure one): OpenAI's low waits at most twice as long as its medium, its high half as long."""


def in_force(own: Endpointing, wish: Endpointing) -> Endpointing:
    """The wish inside the bounds; `own`: what the gateway does without one. Raises `BadMessage` for numbers that mean nothing."""
    probability, preroll_ms = wish.speech_probability, wish.preroll_ms
    if probability is not None:
        if not 0 <= probability <= 1:
            raise BadMessage(f"endpointing.speech_probability is {probability}; expected 0 to 1.")
        probability = min(max(probability, PROBABILITIES[0]), PROBABILITIES[1])
    for name, value in (("preroll_ms", preroll_ms), ("silence_ms", wish.silence_ms)):
        if value is not None and (math.isnan(value) or value < 0):
            raise BadMessage(f"endpointing.{name} is {value}; expected milliseconds, 0 or more.")
    if wish.idle_timeout_ms is not None and not IDLE_MS[0] <= wish.idle_timeout_ms <= IDLE_MS[1]:
        raise BadMessage(f"endpointing.idle_timeout_ms is {wish.idle_timeout_ms}; expected {IDLE_MS[0]} to {IDLE_MS[1]}.")
    return Endpointing(
        speech_probability=own.speech_probability if probability is None else probability,
        preroll_ms=own.preroll_ms if preroll_ms is None else min(preroll_ms, LONGEST_PREROLL_MS),
        silence_ms=None if wish.silence_ms is None else min(max(wish.silence_ms, SHORTEST_SILENCE_MS), LONGEST_SILENCE_MS),
        eagerness=wish.eagerness,
        idle_timeout_ms=wish.idle_timeout_ms,
    )


def adapted(settings: EndpointingSettings, wish: Endpointing) -> EndpointingSettings:
    """The numbers of one session. `wish`: as `in_force` gives it."""
    probability = wish.speech_probability
    if probability is not None and probability != settings.speech_probability:
        settings = structs.replace(settings, speech_probability=probability, silence_probability=max(0.05, probability - _HYSTERESIS))
    if wish.silence_ms is not None:  # a plain timer is what was asked for: neither sound nor words move it
        return structs.replace(settings, sure_ms=wish.silence_ms, unsure_ms=wish.silence_ms, longest_ms=wish.silence_ms)
    sure, unsure = _FACTORS[wish.eagerness]
    sure_ms = min(round(settings.sure_ms * sure), LONGEST_SILENCE_MS)
    unsure_ms = min(max(sure_ms, round(settings.unsure_ms * unsure)), LONGEST_SILENCE_MS)
    longest_ms = min(max(unsure_ms, round(settings.longest_ms * unsure)), LONGEST_SILENCE_MS)
    return structs.replace(settings, sure_ms=sure_ms, unsure_ms=unsure_ms, longest_ms=longest_ms)
