"""One text spoken by the edge service: request, audio and words as they come, end; each wait bounded."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator

from msgspec import structs

from engine.api import EngineError, EngineStalled, SpeechChunk, SpeechCut, Synthesis, WordTiming
from engine.audio import Resampler, apply_gain
from engine.audio_codecs import CorruptAudio
from engine.audio_codecs.mp3_frames import ENCODER_DELAY_SAMPLES, FrameReader
from engine.settings import EdgeSettings
from engine.tts.decoders import Answer
from engine.tts.edge.connections import ConnectionLost, EdgeConnection, EdgeConnections
from engine.tts.edge.hold import WordHold
from engine.tts.edge.protocol import SAMPLE_RATE_HZ, Audio, Message, Nothing, TurnEnd, Words, config_message
from engine.tts.lead import LeadTrim
from engine.tts.lengths import longest_ms
from engine.tts.script import speakable

_MISSING_MS = 60  # audio may end this much before the announced end of the last word
_FASTEST_MS_PER_CHARACTER = 60  # text without an announced word may still be in audio of at least this length
_LONGEST_TAIL_MS = 1_500  # the service ends a text with about 0.8 s of silence
_MS_PER_FRAME = 24  # 576 samples


class Recital:
    """Speaks one text, once."""

    def __init__(self, connections: EdgeConnections, settings: EdgeSettings, synthesis: Synthesis, decoder: Answer) -> None:
        self._connections, self._settings, self._synthesis = connections, settings, synthesis
        self._decoder = decoder
        self._hold = WordHold(synthesis.text, SAMPLE_RATE_HZ)
        self._lead = LeadTrim(SAMPLE_RATE_HZ)
        self._resampler = Resampler(SAMPLE_RATE_HZ, synthesis.sample_rate_hz)
        self._passage = Mp3Passage() if synthesis.encoding == "mp3" else None
        self._longest_ms = longest_ms(synthesis.text)
        self._first_deadline = asyncio.get_running_loop().time() + settings.first_audio_s

    async def run(self, request: str) -> AsyncGenerator[SpeechChunk, None]:
        """Chunks up to the end. Raises `SpeechCut` when some was let out before it failed, else the failure itself."""
        try:
            connection, message = await self._begin(request)
        except TimeoutError as error:
            raise EngineStalled(f"no audio within {self._settings.first_audio_s} s") from error
        try:
            while not isinstance(message, TurnEnd) and not self._is_tail_long():
                if (chunk := await self._on(message)) is not None:
                    yield chunk
                message = await self._next(connection)
            yield await self._finish()
        except EngineError as error:
            if not self._is_all_said():
                raise self._cut(error) from error
            if (chunk := self._chunk(*self._hold.take_all(), last=True)) is not None:
                yield chunk
        finally:
            self._decoder.close()
            self._connections.retire(connection)

    async def _begin(self, request: str) -> tuple[EdgeConnection, Message]:
        """Ask, and wait for the first sign of life; a spare that had died while it waited is replaced unnoticed."""
        connection, was_spare = await self._connections.take()
        self._connections.expect()
        try:
            return connection, await self._ask(connection, request)
        except ConnectionLost:
            if not was_spare:
                raise
        self._connections.on_dead_spare(connection)
        connection = await self._connections.open()
        return connection, await self._ask(connection, request)

    async def _ask(self, connection: EdgeConnection, request: str) -> Message:
        try:
            async with asyncio.timeout_at(self._first_deadline):
                await connection.send(config_message(), request)
                return await connection.receive()
        except BaseException:
            self._connections.retire(connection)
            raise

    async def _next(self, connection: EdgeConnection) -> Message:
        now = asyncio.get_running_loop().time()
        deadline = now + self._settings.next_s if self._hold.received_ms else self._first_deadline
        try:
            async with asyncio.timeout_at(deadline):
                return await connection.receive()
        except TimeoutError as error:
            raise EngineStalled(f"no message for {deadline - now:.1f} s after {self._hold.received_ms:.0f} ms of audio") from error

    async def _on(self, message: Message) -> SpeechChunk | None:
        match message:
            case Audio(data):
                self._hold.on_pcm(await self._decoder.feed(data))
                if self._passage is not None:
                    self._passage.feed(data)
                if self._hold.received_ms > self._longest_ms:
                    raise EngineError(f"expected at most {self._longest_ms} ms for {len(self._synthesis.text)} characters, got more")
            case Words(words):
                self._hold.on_words(words)
            case TurnEnd() | Nothing():
                return None
        return self._chunk(*self._hold.take())

    async def _finish(self) -> SpeechChunk:
        """The rest after `turn.end`. Raises `EngineError` when the audio does not cover the text: a short one ends the same way."""
        self._hold.on_pcm(await self._decoder.feed(None))
        if not self._hold.received_ms:
            raise CorruptAudio("expected MP3, got none")
        if (last := self._hold.last_word) is not None:
            over_ms = self._hold.received_ms - last.end_ms
            n_missing = sum(character.isalnum() for character in self._synthesis.text[last.end :])
            if over_ms < (n_missing * _FASTEST_MS_PER_CHARACTER if n_missing else -_MISSING_MS):
                raise EngineError(f"expected the whole text, got an end {over_ms:.0f} ms after a word with {n_missing} letters to go")
        return self._chunk(*self._hold.take_all(), last=True) or SpeechChunk(pcm=b"")

    def _chunk(self, pcm: bytes, words: tuple[WordTiming, ...], last: bool = False) -> SpeechChunk | None:
        """Audio that may go out: lead trimmed, at the loudness and rate that were asked for. MP3 goes as the service made it."""
        mp3 = b""
        if self._passage is not None:
            mp3 = self._passage.take_all() if last else self._passage.take(self._hold.let_out_ms)
        else:
            pcm = apply_gain(self._lead.feed(pcm), self._synthesis.style.volume)
            words = tuple(_earlier(word, self._lead.cut_ms) for word in words)
        sound = self._resampler.feed(pcm) + (self._resampler.flush() if last else b"")
        if not sound and not words and not mp3:
            return None
        return SpeechChunk(pcm=sound, words=words, voice=self._synthesis.voice, mp3=mp3)

    def _is_tail_long(self) -> bool:
        """Whether sound goes on although the last word of the text is over."""
        last = self._hold.last_word
        if last is None or speakable(self._synthesis.text[last.end :]):
            return False
        return self._hold.received_ms > last.end_ms + _LONGEST_TAIL_MS

    def _is_all_said(self) -> bool:
        spoken = self._hold.spoken
        return spoken is not None and self._hold.let_out_ms > 0 and not speakable(self._synthesis.text[spoken:])

    def _cut(self, error: EngineError) -> EngineError:
        """`SpeechCut` when the listener has heard some of it."""
        if self._hold.let_out_ms == 0:
            return error
        return SpeechCut(f"broke off after {self._hold.let_out_ms:.0f} ms: {error}", spoken=self._hold.spoken)


def _earlier(word: WordTiming, cut_ms: int) -> WordTiming:
    return structs.replace(word, start_ms=max(0, word.start_ms - cut_ms), end_ms=max(0, word.end_ms - cut_ms))


class Mp3Passage:
    """The service's own frames, let out in step with the PCM."""

    def __init__(self) -> None:
        self._reader = FrameReader()
        self._frames: list[bytes] = []
        self._taken = 0

    def feed(self, data: bytes) -> None:
        self._frames += [frame.data for frame in self._reader.feed(data) if not frame.is_tag]

    def take(self, until_ms: float) -> bytes:
        """Frames that sound before `until_ms` of the decoded audio, whose beginning the encoder delays."""
        delay_ms = 1000 * ENCODER_DELAY_SAMPLES / SAMPLE_RATE_HZ
        n_due = math.ceil((until_ms + delay_ms) / _MS_PER_FRAME) if until_ms else 0
        return self._take(max(0, n_due - self._taken))

    def take_all(self) -> bytes:
        return self._take(len(self._frames))

    def _take(self, n_frames: int) -> bytes:
        due, self._frames = self._frames[:n_frames], self._frames[n_frames:]
        self._taken += len(due)
        return b"".join(due)
