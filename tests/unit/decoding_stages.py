"""Decoders' processes for the tests: the real one, and one that some packets bring down."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from typing import Any

from engine.audio_codecs.opus import OpusDecoder
from engine.decoding.stage import DecodingStage
from engine.tts.decoders import SpeechStage
from engine.worker.jobs import Job

DIES, HANGS, SLOW = b"dies", b"hangs", b"slow"


class FragileStage(DecodingStage):
    """Ends on `DIES` as a library does that writes where it must not, and never comes back from `HANGS`."""

    def handle(self, job: Job) -> Iterable[Any]:  # Any: as in the stage
        _, _, data, *_ = job.body
        if data == DIES:
            os.abort()
        if data == HANGS:
            threading.Event().wait()
        if data == SLOW:
            time.sleep(0.05)
        return super().handle(job)


class CountingStage(DecodingStage):
    """Answers with how many streams it remembers."""

    def handle(self, job: Job) -> Iterable[Any]:  # Any: as in the stage
        stream, _, _, *over = job.body
        for gone in over[0] if over else ():
            self._decoders.pop(gone, None)
        self._decoders[stream] = self._decoders.get(stream) or OpusDecoder(16_000)
        job.send(str(len(self._decoders)).encode())
        return ()


class FragileSpeechStage(SpeechStage):
    """Ends on `DIES`, in whatever answer."""

    def handle(self, job: Job) -> Iterable[Any]:  # Any: as in the stage
        if job.body[2] == DIES:
            os.abort()
        return super().handle(job)
