"""espeak-ng: a robot's voice that needs no weights, speaks in 2 ms and knows many languages. The last resort."""

from __future__ import annotations

from engine.api import Voice
from engine.tts.local import LocalVoices
from engine.worker import WorkerSpec

NAME = "espeak"
# English first, it is the default. No Chinese: its Mandarin cannot be understood.
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "da", "fi", "hu", "ro", "el", "tr", "ru", "uk", "hi", "vi", "id")
_CAPACITY = 256


class Espeak(LocalVoices):
    """Speaks with espeak-ng; ids are `espeak/` and the language."""

    def __init__(self) -> None:
        voices = [Voice(id=f"{NAME}/{language}", languages=(language,), engine=NAME) for language in LANGUAGES]
        spec = WorkerSpec(name=NAME, factory="engine.tts.espeak.stage:EspeakStage", capacity=_CAPACITY, ready_s=30.0)
        super().__init__(NAME, voices, spec)
