"""Whisper inside its worker, on CTranslate2: features, encoder, words; between two of these steps a final overtakes a partial.

Logs nothing: what is said belongs to whoever said it.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

os.environ.setdefault(
    "KMP_BLOCKTIME", "0"
)  # OpenMP's threads sleep at once: spinning for 200 ms they starve the other stages of a small machine
import ctranslate2

from engine.api import EngineSetupError
from engine.asr.whisper.reading import is_loop, is_silence, most_tokens, near, read
from engine.asr.whisper.windows import split, window_s
from engine.mel import RATE_HZ, Floats, log_mel
from engine.worker.jobs import Job

_SILENT = 0.001  # of full scale: below -60 dB there is nothing to understand
_SHORTEST = RATE_HZ // 10  # a tenth of a second holds no word
_SURE = 0.8  # from here on the language of an utterance is settled,
_SURE_SAMPLES = 2 * RATE_HZ  # once there is that much of it
_MOST_KEPT = 256  # utterances, and sessions
_PROMPT_TOKENS = 4
# Three ways followed at once cost 10 % more than one, and misread 2 to 11 % of words at 10 dB where one misread 10 to 14 %; five gain
# nothing. The same for partials, so that a partial and the final of the same audio are the same text. All three are read, at no cost.
_BEAM = 3


class Setup(msgspec.Struct, frozen=True):
    """What the stage is started with."""

    folder: str
    languages: tuple[str, ...]
    threads: int
    parallel: int


class Request(msgspec.Struct, frozen=True):
    """An utterance so far: s16le at 16 kHz."""

    utterance: str
    session: str
    pcm: bytes
    language: str | None


class _Known(msgspec.Struct):
    """What is settled about an utterance: the sample up to which it was read and that text, its language (else the last guess)."""

    session: str = ""
    settled: tuple[int, str] = (0, "")
    language: str | None = None
    guess: str | None = None


class Written(msgspec.Struct, frozen=True):
    """What was understood of one piece, what may have been said instead, and the mean log-probability of a token."""

    text: str = ""
    rivals: tuple[str, ...] = ()
    certainty: float | None = None


class WhisperStage:
    """`parallel` inferences at once, each on `threads` threads."""

    def __init__(self, setup: Any) -> None:  # Any: `Setup` as msgpack values
        wanted = msgspec.convert(setup, Setup)
        self.concurrency = wanted.parallel
        self._model = _load(wanted)
        known = _languages(Path(wanted.folder)) if self._model.is_multilingual else frozenset({"en"})
        unknown = [language for language in wanted.languages if language not in known]
        if unknown:
            raise EngineSetupError(f"asr.languages names {', '.join(unknown)}, the model knows {', '.join(sorted(known))}")
        self._known_languages, self._told_apart = known, frozenset(wanted.languages or known)
        self._known: OrderedDict[str, _Known] = OrderedDict()  # by utterance
        self._spoken: OrderedDict[str, str] = OrderedDict()  # session -> the language it surely spoke last
        for _ in self._read_piece(np.full(RATE_HZ, 0.1, np.float32), _Known(language="en")):
            pass  # the first inference allocates: not in a conversation

    def describe(self) -> Any:  # Any: msgpack values
        return {"languages": sorted(self._known_languages)}

    def handle(self, job: Job) -> Iterator[tuple[str, str | None, tuple[str, ...], float | None] | None]:
        """None after each step, at last the text, its language, its rivals and its certainty (of a long utterance: of its last piece)."""
        request = msgspec.convert(job.body, Request)
        samples = np.frombuffer(request.pcm, "<i2").astype(np.float32) / np.float32(32_768)
        samples -= samples.mean() if len(samples) else 0  # an offset is no sound
        known = self._recall(request)
        settled, before = known.settled
        last = Written()
        for start, end in split(samples, settled):
            for part in self._read_piece(samples[start:end], known):
                if part is None:
                    yield None
                else:
                    last = part
            if end < len(samples):
                before = f"{before} {last.text}".strip()
                known.settled = end, before
        text, *rivals = (f"{before} {part}".strip() for part in (last.text, *last.rivals))
        yield text, known.language or known.guess, tuple(rivals), last.certainty

    def _recall(self, request: Request) -> _Known:
        known = self._known.pop(request.utterance, None) or _Known(session=request.session)
        if request.language is not None:
            known.language = request.language if request.language in self._known_languages else None
        _keep(self._known, request.utterance, known)
        return known

    def _read_piece(self, samples: Floats, known: _Known) -> Iterator[Written | None]:
        """None after a step, then what was understood."""
        if len(samples) < _SHORTEST or float(np.abs(samples).max()) < _SILENT:
            yield Written()
            return
        features = log_mel(samples, window_s(len(samples)) * 100, self._model.n_mels)
        encoded = self._model.encode(ctranslate2.StorageView.from_array(features[None]), to_cpu=True)
        yield None
        language = known.language or self._tell_language(encoded, len(samples), known)
        yield self._write(encoded, language, len(samples) / RATE_HZ)

    def _tell_language(self, encoded: Any, n_samples: int, known: _Known) -> str:  # Any: CTranslate2 is not typed
        scores = self._model.detect_language(encoded)[0] if self._model.is_multilingual else [("<|en|>", 1.0)]
        language, probability = next((str(name[2:-2]), p) for name, p in scores if name[2:-2] in self._told_apart)
        if probability > _SURE and n_samples > _SURE_SAMPLES:
            known.language = language
            _keep(self._spoken, known.session, language)
        elif probability < _SURE:  # a short answer in a conversation: rather in the language spoken so far than in Welsh
            language = self._spoken.get(known.session, language)
        known.guess = language
        return language

    def _write(self, encoded: Any, language: str, length_s: float) -> Written:  # Any: CTranslate2 is not typed
        task = [f"<|{language}|>", "<|transcribe|>"] if self._model.is_multilingual else []
        prompt = ["<|startoftranscript|>", *task, "<|notimestamps|>"]
        most = _PROMPT_TOKENS + most_tokens(length_s)
        for repeats_at in (0, 3):  # again without repeating three tokens, where the first answer was a loop
            (result,) = self._model.generate(
                encoded,
                [prompt],
                beam_size=_BEAM,
                num_hypotheses=_BEAM,
                max_length=most,
                no_repeat_ngram_size=repeats_at,
                return_scores=True,
                return_no_speech_prob=True,
            )
            readings = [(read(tokens), mean) for tokens, mean in zip(result.sequences, result.scores, strict=True)]
            text, certainty = readings[0]
            if is_silence(result.no_speech_prob, certainty):
                return Written()
            written = Written(text, near(readings), certainty)
            if not is_loop(text) and _PROMPT_TOKENS + len(result.sequences[0]) < most:
                return written
        return Written() if is_loop(text) else written


T = TypeVar("T")


def _keep(memory: OrderedDict[str, T], name: str, value: T) -> None:
    """Remember what was used last."""
    memory[name] = value
    memory.move_to_end(name)
    while len(memory) > _MOST_KEPT:
        memory.popitem(last=False)


def _load(wanted: Setup) -> Any:  # Any: CTranslate2 is not typed
    threads = wanted.threads or min(4, os.cpu_count() or 1)
    try:
        return ctranslate2.models.Whisper(
            wanted.folder, device="cpu", compute_type="int8", inter_threads=wanted.parallel, intra_threads=threads
        )
    except (RuntimeError, ValueError) as error:
        raise EngineSetupError(f"{wanted.folder} is not a CTranslate2 Whisper model that runs here: {error}") from error


def _languages(folder: Path) -> frozenset[str]:
    """Language tags of the vocabulary: the control tokens between the start of a transcript and the tasks."""
    try:
        for name in ("vocabulary.json", "vocabulary.txt"):
            if (folder / name).is_file():
                raw = (folder / name).read_text("utf-8")
                tokens = json.loads(raw) if name.endswith("json") else raw.split("\n")
                return frozenset(token[2:-2] for token in tokens[tokens.index("<|startoftranscript|>") + 1 : tokens.index("<|translate|>")])
    except (OSError, ValueError) as error:
        raise EngineSetupError(f"the vocabulary of the Whisper model in {folder} cannot be read: {error}") from error
    raise EngineSetupError(f"{folder} has no vocabulary.json or vocabulary.txt: expected a CTranslate2 Whisper model")
