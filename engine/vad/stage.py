"""Silero VAD inside its worker. One inference scores a frame of every stream in the batch: 62 us each for 64 of them, 150 us for one alone.

Source: the model's own file: input (batch, 64 samples of context + 512), state (2, batch, 128), rate; out come probability and state.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.onnx import open_session
from engine.voice_stream import FRAME_BYTES, RATE_HZ
from engine.worker.jobs import Job

_CONTEXT = 64  # samples of the frame before, which the model wants again
_STATE = (2, 128)


class Setup(msgspec.Struct, frozen=True):
    """What the stage is started with."""

    model: str
    threads: int


class Round(msgspec.Struct, frozen=True):
    """Whole frames of some streams: number, whether its memory starts anew, s16le; and the numbers that are over."""

    streams: tuple[tuple[int, bool, bytes], ...]
    forget: tuple[int, ...]


class _Memory:
    """What the model remembers of a stream."""

    def __init__(self) -> None:
        self.state: NDArray[np.float32] = np.zeros(_STATE, np.float32)
        self.context: NDArray[np.float32] = np.zeros(_CONTEXT, np.float32)


class SileroStage:
    """All streams of this gateway. One inference at a time."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        wanted = msgspec.convert(setup, Setup)
        self._session = open_session(wanted.model, wanted.threads)
        self._memories: dict[int, _Memory] = {}
        for n_streams in (1, 8):  # the first inference allocates: not in a conversation
            self._infer(np.zeros((n_streams, _CONTEXT + FRAME_BYTES // 2), np.float32), np.zeros((2, n_streams, 128), np.float32))

    def describe(self) -> Any:  # Any: msgpack values
        return {}

    def handle(self, job: Job) -> Iterator[list[list[float]]]:
        """Probabilities of each stream's frames, in the order of the round."""
        wanted = msgspec.convert(job.body, Round)
        for number in wanted.forget:
            self._memories.pop(number, None)
        scores: list[list[float]] = []
        frames: list[NDArray[np.float32]] = []
        memories: list[_Memory] = []
        for number, is_fresh, pcm in wanted.streams:
            if is_fresh or number not in self._memories:
                self._memories[number] = _Memory()
            memories.append(self._memories[number])
            frames.append((np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32_768)).reshape(-1, FRAME_BYTES // 2))
            scores.append([])
        for index in range(max((len(part) for part in frames), default=0)):
            present = [at for at, part in enumerate(frames) if index < len(part)]
            probabilities = self._score([frames[at][index] for at in present], [memories[at] for at in present])
            for at, probability in zip(present, probabilities, strict=True):
                scores[at].append(probability)
        yield scores

    def _score(self, frames: list[NDArray[np.float32]], memories: list[_Memory]) -> list[float]:
        """One frame of each of some streams; their memories move on."""
        rows = np.stack([np.concatenate((memory.context, frame)) for memory, frame in zip(memories, frames, strict=True)])
        probabilities, states = self._infer(rows, np.stack([memory.state for memory in memories], axis=1))
        for at, memory in enumerate(memories):
            memory.state, memory.context = states[:, at], rows[at, -_CONTEXT:]
        return [float(value) for value in probabilities[:, 0]]

    def _infer(self, rows: NDArray[np.float32], states: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        probabilities, states = self._session.run(None, {"input": rows, "state": states, "sr": np.array(RATE_HZ, np.int64)})
        return probabilities, states
