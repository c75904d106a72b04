"""espeak-ng inside its worker, through ctypes. GPL-3.0 code is loaded here and nowhere else.

The library is one per process and calls back with about 60 ms of sound at a time; a cancel is an answer to that call.
Source: espeak-ng's speak_lib.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import espeakng_loader
import msgspec

from engine.api import EngineError, EngineSetupError
from engine.audio import Resampler, apply_gain
from engine.worker.jobs import Job

_SYNCHRONOUS = 2  # AUDIO_OUTPUT_SYNCHRONOUS: sound comes through the callback, and the call returns when all is said
_BUFFER_MS = 60
_UTF8 = 1  # espeakCHARS_UTF8; without espeakSSML and espeakPHONEMES a text is a text
_RATE = 1  # espeakRATE, words a minute
_NORMAL_WPM, _LOWEST_WPM, _HIGHEST_WPM = 175, 80, 450
_OK = 0
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


class Request(msgspec.Struct, frozen=True):
    """One segment."""

    text: str
    voice: str
    sample_rate_hz: int
    rate: float
    volume: float


class EspeakStage:
    """The library and whoever it speaks for."""

    concurrency = 1

    def __init__(self, setup: Any) -> None:  # Any: nothing
        try:
            self._library = ctypes.CDLL(espeakng_loader.get_library_path())
            data = espeakng_loader.get_data_path()
        except (OSError, RuntimeError) as error:
            raise EngineSetupError(f"espeakng-loader holds no library for this machine: {error}") from error
        self._native_hz = self._library.espeak_Initialize(_SYNCHRONOUS, _BUFFER_MS, data.encode(), 0)
        if self._native_hz <= 0:
            raise EngineSetupError(f"espeak-ng does not start with its data in {data} (a path of more than 150 characters is too long)")
        self._job: Job | None = None
        self._request: Request | None = None
        self._resampler = Resampler(self._native_hz, self._native_hz)
        self._callback = _Callback(self._on_sound)  # kept: the library holds only its address
        self._library.espeak_SetSynthCallback(self._callback)

    def describe(self) -> Any:  # Any: msgpack values
        return {"sample_rate_hz": self._native_hz}

    def handle(self, job: Job) -> Iterable[bytes]:
        """Sends sound while it is made; what is returned is the rest in the resampler."""
        request = msgspec.convert(job.body, Request)
        language = request.voice.partition("/")[2]
        if self._library.espeak_SetVoiceByName(language.encode()) != _OK:
            raise EngineError(f"espeak-ng knows no voice {language!r}")
        words_a_minute = min(max(round(_NORMAL_WPM * request.rate), _LOWEST_WPM), _HIGHEST_WPM)
        self._library.espeak_SetParameter(_RATE, words_a_minute, 0)
        self._job, self._request, self._resampler = job, request, Resampler(self._native_hz, request.sample_rate_hz)
        text = request.text.encode("utf-8", "replace") + b"\0"
        if self._library.espeak_Synth(text, ctypes.c_size_t(len(text)), 0, 0, 0, _UTF8, None, None) != _OK:
            raise EngineError("espeak-ng refused a text")
        return (self._resampler.flush(),)

    def _on_sound(self, samples: Any, n_samples: int, events: Any) -> int:  # Any: C pointers
        assert self._job is not None, "sound comes while a request is handled"
        assert self._request is not None, "it is set with the job"
        if samples and n_samples > 0:
            pcm = apply_gain(ctypes.string_at(samples, 2 * n_samples), self._request.volume)
            self._job.send(self._resampler.feed(pcm))
        return int(self._job.cancelled)
