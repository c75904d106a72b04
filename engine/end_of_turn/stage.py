"""smart-turn v3.2 inside its worker: Whisper features of the last eight seconds, then one inference.

Source: github.com/pipecat-ai/smart-turn, inference: shorter audio stands at the window's end, the wave is leveled, 80 channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from engine.end_of_turn import HEARD_MS
from engine.mel import RATE_HZ, Floats, log_mel, normalize
from engine.onnx import open_session
from engine.worker.jobs import Job

_N_SAMPLES = RATE_HZ * HEARD_MS // 1000
_N_FRAMES = HEARD_MS // 10


class Setup(msgspec.Struct, frozen=True):
    """What the stage is started with."""

    model: str
    threads: int


class SmartTurnStage:
    """One question at a time."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        wanted = msgspec.convert(setup, Setup)
        self._session = open_session(wanted.model, wanted.threads)
        self._judge(b"")  # the first inference allocates: not in a conversation

    def describe(self) -> Any:  # Any: msgpack values
        return {}

    def handle(self, job: Job) -> Iterator[float]:
        """The probability that the speaker has finished."""
        yield self._judge(job.body)

    def _judge(self, pcm: bytes) -> float:
        (probability,) = self._session.run(None, {"input_features": features(pcm)[None]})
        return float(probability[0, 0])


def features(pcm: bytes) -> Floats:
    """`(80, 800)` of s16le at 16 kHz, at most eight seconds of it."""
    samples = np.zeros(_N_SAMPLES, np.float32)
    heard = np.frombuffer(pcm, "<i2")[-_N_SAMPLES:]
    if len(heard):
        samples[-len(heard) :] = heard.astype(np.float32) / np.float32(32_768)
    return log_mel(normalize(samples), _N_FRAMES)
