"""What operators learn of voices that fail or step in for each other: counters and one log line each."""

from __future__ import annotations

import logging

from engine.api import Synthesizer
from gateway.metrics import Metrics

log = logging.getLogger("stretto.voices")


class VoiceWatch:
    """An observer of the voices. Labels are engines' names: a closed set, which voices are not."""

    def __init__(self, voices: Synthesizer, metrics: Metrics) -> None:
        self._voices, self._metrics = voices, metrics

    def on_voice_fault(self, engine: str, kind: str, rests: bool) -> None:
        """Counted; a rest is worth a line."""
        self._metrics.tts_faults.labels(engine, kind).inc()
        if rests:
            self._metrics.tts_rests.labels(engine).inc()
            log.warning("voice engine rests", extra={"engine": engine, "kind": kind})

    def on_voice_change(self, asked: str, spoken_by: str) -> None:
        """Counted; the listener learns it from `segment.audio`."""
        engines = {voice.id: voice.engine for voice in self._voices.voices()}
        unknown = self._voices.name
        self._metrics.voice_changes.labels(engines.get(asked, unknown), engines.get(spoken_by, unknown)).inc()
