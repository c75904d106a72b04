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
from numpy.typing import NDArray
from piper import PiperVoice, SynthesisConfig
from piper.config import PiperConfig

from engine.api import EngineSetupError
from engine.audio import Resampler, from_float
from engine.tts.inference import InterruptibleSession, trim_lead
from engine.tts.piper.clauses import split_clauses
from engine.worker.jobs import Job

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


def _load(path: str, threads: int) -> PiperVoice:
    try:
        with open(f"{path}.json", encoding="utf-8") as file:
            config = PiperConfig.from_dict(json.load(file))
        return PiperVoice(session=InterruptibleSession(path, threads), config=config)
    except (OSError, ValueError, KeyError) as error:
        raise EngineSetupError(f"the Piper voice {path} cannot be read: {type(error).__name__}: {error}") from error
    except Exception as error:  # onnxruntime has a class for each fault and no common one
        raise EngineSetupError(f"the Piper voice {path} is not an ONNX model that runs here: {type(error).__name__}") from error
