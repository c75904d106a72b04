"""Kokoro inside its worker: text to phonemes to sound, one clause an inference, one inference at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from engine.api import EngineSetupError
from engine.audio import Resampler, from_float, silence
from engine.tts.inference import InterruptibleSession, trim_lead
from engine.tts.kokoro.clauses import pause_ms, split
from engine.tts.kokoro.phonemes import Phonemizer
from engine.tts.kokoro.vocabulary import LONGEST, numbers_of
from engine.worker.jobs import Job

SAMPLE_RATE_HZ = 24_000
_STYLE_SHAPE = (510, 1, 256)  # a style vector for each length of the input
_RATE_BOUNDS = (0.5, 2.0)
_TAIL_MS = 60  # kept after a clause's last sound
_LAST_TAIL_MS = 250


class Setup(msgspec.Struct, frozen=True):
    """What the stage is started with: the model, the folder of voices, their names, and threads per inference."""

    model: str
    folder: str
    voices: tuple[str, ...]
    threads: int


class Request(msgspec.Struct, frozen=True):
    """One segment."""

    text: str
    voice: str
    sample_rate_hz: int
    rate: float
    volume: float


class KokoroStage:
    """All Kokoro voices. Two inferences at once would take twice as long each."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        wanted = msgspec.convert(setup, Setup)
        self._voices = {voice: _load_voice(Path(wanted.folder) / f"{voice.partition('/')[2]}.bin") for voice in wanted.voices}
        try:
            self._session = InterruptibleSession(wanted.model, wanted.threads)
        except Exception as error:  # onnxruntime has a class for each fault and no common one
            raise EngineSetupError(f"{wanted.model} is not an ONNX model that runs here: {type(error).__name__}") from error
        self._phonemizer = Phonemizer(with_chinese=any(_kind(voice) == "z" for voice in wanted.voices))
        self._infer(next(iter(self._voices.values())), numbers_of("həlˈoʊ."), 1.0)  # the first inference allocates

    def describe(self) -> Any:  # Any: msgpack values
        return sorted(self._voices)

    def handle(self, job: Job) -> Iterator[bytes]:
        """PCM, a clause a step."""
        request = msgspec.convert(job.body, Request)
        rate = min(max(request.rate, _RATE_BOUNDS[0]), _RATE_BOUNDS[1])
        resampler = Resampler(SAMPLE_RATE_HZ, request.sample_rate_hz)
        clauses = split(self._phonemizer.phonemes(request.text, _kind(request.voice)), LONGEST)
        for i, clause in enumerate(clauses):
            numbers = numbers_of(clause)
            if not any(sign.isalnum() for sign in clause) or not numbers:
                continue
            is_last = i == len(clauses) - 1
            self._session.arm()
            with job.interruptible(self._session.interrupt):
                samples = self._infer(self._voices[request.voice], numbers, rate)
            samples = trim_tail(trim_lead(samples, SAMPLE_RATE_HZ), _LAST_TAIL_MS if is_last else _TAIL_MS)
            pause = b"" if is_last else silence(max(0, pause_ms(clause) - _TAIL_MS) / rate, SAMPLE_RATE_HZ)
            yield resampler.feed(from_float(samples, request.volume) + pause)
        yield resampler.flush()

    def _infer(self, voice: NDArray[np.float32], numbers: list[int], rate: float) -> NDArray[np.float32]:
        inputs = {
            "tokens": np.array([[0, *numbers, 0]], np.int64),
            "style": np.asarray(voice[len(numbers) - 1], np.float32),
            "speed": np.array([rate], np.float32),
        }
        return np.asarray(self._session.run(None, inputs)[0], np.float32).ravel()


def trim_tail(samples: NDArray[np.float32], kept_ms: int) -> NDArray[np.float32]:
    """`(n_samples,)` floats with at most `kept_ms` of silence after the last sound."""
    loud = np.flatnonzero(np.abs(samples) > 0.01)
    end = int(loud[-1]) + 1 + kept_ms * SAMPLE_RATE_HZ // 1000 if len(loud) else len(samples)
    return samples[:end]


def _kind(voice: str) -> str:
    """ "z" of "kokoro/zf_xiaobei": language and accent."""
    return voice.partition("/")[2][:1]


def _load_voice(path: Path) -> NDArray[np.float32]:
    """Raises `EngineSetupError`."""
    try:
        return np.fromfile(path, "<f4").reshape(_STYLE_SHAPE)
    except (OSError, ValueError) as error:
        raise EngineSetupError(f"the Kokoro voice {path} cannot be read: {error}") from error
