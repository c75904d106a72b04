"""The requests of one microphone to the recognizer and the end-of-turn model, and what becomes of their answers.

Tasks belong to the listener's group. An answer to a pause that is over is forgotten; a failure is counted, and the final text is asked
for again until its deadline, because the audio is still there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from engine.api import Ears, EngineError, Transcript, Transcription
from gateway.config import HearingSettings
from gateway.listener.utterance import OpenUtterance, Piece, joined
from gateway.metrics import ListeningMetrics

RETRY_S = 0.25  # between two attempts for a final text while the recognizer restarts or is full


class Readings:
    """Asks; answers come by callback, on the loop, only while they are wanted."""

    def __init__(self, stream_id: str, ears: Ears, settings: HearingSettings, metrics: ListeningMetrics, tasks: asyncio.TaskGroup) -> None:
        self._stream_id = stream_id
        self._ears, self._settings, self._metrics = ears, settings, metrics
        self._tasks = tasks

    def read_partial(
        self,
        utterance: OpenUtterance,
        pcm: bytes,
        until_ms: float,
        language: str | None,
        on_text: Callable[[OpenUtterance], None],
    ) -> None:
        """Text of what was said so far of the newest piece, into `piece.partial`."""
        piece = utterance.piece

        async def read() -> None:
            try:
                transcript = await self._transcribe(utterance, piece, pcm, language, is_final=False)
            finally:
                piece.is_read = False
                piece.read_until_ms = until_ms
            if transcript is not None and transcript.text and piece is utterance.piece:
                piece.partial = transcript.text
                on_text(utterance)

        piece.is_read = True
        self._spawn(utterance, read(), "partial")

    def begin_pause(self, utterance: OpenUtterance) -> None:
        """The speaker pauses: the closing text is asked for, which ends a partial reading on its way."""
        utterance.is_paused = True
        utterance.pause += 1

    def forget_pause(self, utterance: OpenUtterance) -> None:
        """The speaker goes on with the same piece: what was asked in the pause is stale."""
        piece = utterance.piece
        self.end_pause(utterance)
        if piece.closing is not None and not piece.closing.done():
            self._ears.recognizer.cancel(self._name(utterance, piece))
        piece.closing, piece.text = None, None

    def end_pause(self, utterance: OpenUtterance) -> None:
        """The speaker goes on, with a piece of its own: the text of what was said before is still wanted."""
        utterance.is_paused = False
        utterance.pause += 1

    def read_closing(
        self, utterance: OpenUtterance, pcm: bytes, language: str | None, on_text: Callable[[OpenUtterance, Transcript], None]
    ) -> None:
        """Text of the newest piece, as if it were over; where it is, it is the final one."""
        piece, pause = utterance.piece, utterance.pause

        async def read() -> None:
            transcript = await self._transcribe(utterance, piece, pcm, language, is_final=True)
            if transcript is None or piece.closing is not asyncio.current_task():
                return
            piece.text, piece.pcm = (transcript.text.strip(), transcript.language), b""
            if utterance.pause == pause:
                on_text(utterance, transcript)

        piece.closing = self._spawn(utterance, read(), "closing text")

    def score(self, utterance: OpenUtterance, pcm: bytes, on_score: Callable[[OpenUtterance, float], None]) -> None:
        """How surely the speaker has finished; no answer in time is none."""
        judge, pause = self._ears.end_of_turn, utterance.pause
        if judge is None:
            return

        async def ask() -> None:
            try:
                async with asyncio.timeout(self._settings.score_s):
                    score = await judge.score(pcm)
            except (EngineError, TimeoutError) as error:
                self._metrics.ear_errors.labels("end_of_turn", error.kind if isinstance(error, EngineError) else "stalled").inc()
                return
            if utterance.pause == pause:
                on_score(utterance, score)

        self._spawn(utterance, ask(), "end of turn")

    async def final(self, utterance: OpenUtterance, language: str | None) -> tuple[str, str | None] | None:
        """Text and language of a finished utterance; None when the recognizer gave none in time.

        Of a long one all pieces whose text came: the speaker is asked again for nothing that was understood. Each piece has its time; the
        first that stays unread ends the wait.
        """
        pieces = [*utterance.earlier, utterance.piece]
        try:
            for piece in pieces:
                async with asyncio.timeout(self._settings.final_s):
                    await self._finish(utterance, piece, language)
        except TimeoutError:
            self.cancel(utterance)
        known = [piece.text for piece in pieces if piece.text is not None]
        return (joined([text for text, _ in known]), known[-1][1]) if known else None

    def cancel(self, utterance: OpenUtterance) -> None:
        """Nothing of an utterance is wanted any more."""
        utterance.pause += 1
        for piece in (*utterance.earlier, utterance.piece):
            self._ears.recognizer.cancel(self._name(utterance, piece))
        for task in utterance.tasks:
            task.cancel()

    async def _finish(self, utterance: OpenUtterance, piece: Piece, language: str | None) -> None:
        if piece.closing is not None:
            await asyncio.wait([piece.closing])
        while piece.text is None:
            transcript = await self._transcribe(utterance, piece, piece.pcm, language, is_final=True)
            if transcript is not None:
                piece.text = (transcript.text.strip(), transcript.language)
            else:
                await asyncio.sleep(RETRY_S)

    async def _transcribe(
        self, utterance: OpenUtterance, piece: Piece, pcm: bytes, language: str | None, *, is_final: bool
    ) -> Transcript | None:
        name = self._name(utterance, piece)
        wanted = Transcription(utterance=name, session=self._stream_id, pcm=pcm, language=language, is_final=is_final)
        try:
            return await self._ears.recognizer.transcribe(wanted)
        except EngineError as error:
            self._metrics.ear_errors.labels("asr", error.kind).inc()
            return None

    def _name(self, utterance: OpenUtterance, piece: Piece) -> str:
        name = f"{self._stream_id}:{utterance.number}"
        return f"{name}.{piece.number}" if piece.number else name

    def _spawn(self, utterance: OpenUtterance, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:  # Any: asyncio's own
        task = self._tasks.create_task(work, name=f"{self._stream_id} {what} {utterance.number}")
        utterance.tasks.add(task)
        task.add_done_callback(utterance.tasks.discard)
        return task
