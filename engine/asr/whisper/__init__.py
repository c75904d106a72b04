"""Whisper on this machine's CPU, in a worker process: any CTranslate2 model, the packaged one being Whisper base (int8)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from engine.api import EngineError, EngineNotReady, EngineSetupError, Health, Transcript, Transcription
from engine.asr.desk import Desk
from engine.worker import Worker, WorkerSpec

NAME = "whisper"
_ROOM = 256  # waiting finals, and waiting partials: one of each for 64 conversations, four times over
_STALL_S = 30.0  # one step on a crowded core
_FINAL, _PARTIAL = 0, 10


class Whisper:
    """The `Recognizer` over the model in `folder`. `languages` are those told apart (empty: all); `threads` 0: as the machine has."""

    def __init__(self, folder: Path, languages: Sequence[str] = (), threads: int = 0, parallel: int = 1) -> None:
        if not (folder / "model.bin").is_file():
            raise EngineSetupError(f"asr.model: {folder} has no model.bin; expected the folder of a CTranslate2 Whisper model")
        setup = {"folder": str(folder), "languages": list(languages), "threads": threads, "parallel": parallel}
        spec = WorkerSpec(
            name=NAME, factory="engine.asr.whisper.stage:WhisperStage", setup=setup, capacity=4 * parallel + 4, stall_s=_STALL_S
        )
        self._worker = Worker(spec)
        self._desk = Desk(self._serve, parallel, _ROOM)
        self._numbers = itertools.count()

    @property
    def name(self) -> str:
        return NAME

    @property
    def pid(self) -> int | None:
        """The worker's process, while there is one."""
        return self._worker.pid

    @property
    def n_waiting(self) -> int:
        """Requests in line."""
        return self._desk.n_waiting

    async def start(self) -> None:
        await self._worker.start()

    async def close(self) -> None:
        await self._worker.close()

    def health(self) -> Health:
        return self._worker.health()

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        """As promised; without word times."""
        health = self._worker.health()
        if not health.ready:
            raise EngineNotReady(f"{NAME} is {health.detail}")
        return await self._desk.transcribe(transcription)

    def cancel(self, utterance: str) -> None:
        self._desk.cancel(utterance)

    async def _serve(self, wanted: Transcription) -> Transcript:
        body = {
            "utterance": wanted.utterance,
            "session": wanted.session,
            "pcm": wanted.pcm[: len(wanted.pcm) // 2 * 2],
            "language": wanted.language,
        }
        priority = _FINAL if wanted.is_final else _PARTIAL
        async with aclosing(self._worker.stream(f"transcription {next(self._numbers)}", body, priority)) as steps:
            async for step in steps:
                if step is not None:
                    text, language, rivals, certainty = step
                    return Transcript(text=text, language=language, rivals=tuple(rivals), certainty=certainty)
        raise EngineError(f"{NAME} gave no text")
