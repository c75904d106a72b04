"""Piper inside its worker: text to phonemes to sound, one clause an inference. GPL-3.0 code is imported here and nowhere else.

Its own onnxruntime session: the library's default lets its threads spin, which on shared cores takes four times as long.
Logs nothing: Piper's own logger would write what is said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from piper import PiperVoice, SynthesisConfig
from piper.config import PiperConfig

from engine.api import EngineSetupError
from engine.audio import Resampler, from_float
from engine.tts.piper.clauses import split_clauses
from engine.worker.jobs import Job

_SILENT = 0.01  # of full scale
_LEAD_MS = 15  # silence kept before the first sound: an attack needs some, a listener does not
_RATE_BOUNDS = (0.5, 2.0)


class VoiceFile(msgspec.Struct, frozen=True):
    """A voice to load: its id and its .onnx file; the .onnx.json stands beside it."""

    id: str
    path: str


class Setup(msgspec.Struct, frozen=True):
    """What the stage is started with."""

    voices: tuple[VoiceFile, ...]
    threads: int


class Request(msgspec.Struct, frozen=True):
    """One segment."""

    text: str
    voice: str
    sample_rate_hz: int
    rate: float
    volume: float


class InterruptibleSession:
    """An onnxruntime session whose running inference can be ended from another thread. One inference at a time."""

    def __init__(self, path: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._options = onnxruntime.RunOptions()

    def arm(self) -> None:
        """Forget an earlier interruption."""
        self._options = onnxruntime.RunOptions()

    def interrupt(self) -> None:
        """The running inference raises soon; the session stays usable."""
        self._options.terminate = True

    def run(self, names: list[str] | None, inputs: dict[str, Any]) -> Any:  # Any: arrays; the signature that Piper calls
        return self._session.run(names, inputs, self._options)


class PiperStage:
    """All Piper voices of this gateway. One inference at a time: two at once would take twice as long each."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        wanted = msgspec.convert(setup, Setup)
        self._voices = {voice.id: _load(voice.path, wanted.threads) for voice in wanted.voices}
        for voice in self._voices.values():  # the first inference allocates: not in a conversation
            voice.phoneme_ids_to_audio(voice.phonemes_to_ids(list("ə,")))

    def describe(self) -> Any:  # Any: msgpack values
        return sorted(self._voices)

    def handle(self, job: Job) -> Iterator[bytes]:
        """PCM, a clause a step."""
        request = msgspec.convert(job.body, Request)
        voice = self._voices[request.voice]
        config = SynthesisConfig(length_scale=voice.config.length_scale / min(max(request.rate, _RATE_BOUNDS[0]), _RATE_BOUNDS[1]))
        resampler = Resampler(voice.config.sample_rate, request.sample_rate_hz)
        is_first = True
        for sentence in voice.phonemize(request.text.replace("[[", "[")):  # double brackets would be read as phonemes
            for clause in split_clauses(sentence, is_first):
                samples = self._speak(job, voice, clause, config)
                if is_first:
                    samples = trim_lead(samples, voice.config.sample_rate)
                    is_first = False
                yield resampler.feed(from_float(samples, request.volume))
        yield resampler.flush()

    def _speak(self, job: Job, voice: PiperVoice, phonemes: list[str], config: SynthesisConfig) -> NDArray[np.float32]:
        session = voice.session
        session.arm()
        with job.interruptible(session.interrupt):
            return np.atleast_1d(np.asarray(voice.phoneme_ids_to_audio(voice.phonemes_to_ids(phonemes), config), np.float32))


def trim_lead(samples: NDArray[np.float32], sample_rate_hz: int) -> NDArray[np.float32]:
    """`(n_samples,)` floats without most of the silence before the first sound."""
    loud = np.flatnonzero(np.abs(samples) > _SILENT)
    start = int(loud[0]) - _LEAD_MS * sample_rate_hz // 1000 if len(loud) else 0
    return samples[max(0, start) :]


def _load(path: str, threads: int) -> PiperVoice:
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            config = PiperConfig.from_dict(json.load(file))
        return PiperVoice(session=InterruptibleSession(path, threads), config=config)
    except (OSError, ValueError, KeyError) as error:
        raise EngineSetupError(f"the Piper voice {path} cannot be read: {type(error).__name__}: {error}") from error
    except Exception as error:  # onnxruntime has a class for each fault and no common one
        raise EngineSetupError(f"the Piper voice {path} is not an ONNX model that runs here: {type(error).__name__}") from error
