"""Any server with OpenAI's `/v1/audio/transcriptions` as a `Recognizer`: vLLM, speaches, whisper.cpp and others behind one protocol.

The whole utterance goes with each request, partials too: the protocol knows no other way. Connections are kept and reused; a cancel closes
the request, which the server sees.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import httpx
import msgspec

from engine.api import EngineBusy, EngineError, EngineNotReady, EngineStalled, Health, HeardWord, Transcript, Transcription
from engine.asr.desk import Desk
from engine.asr.errors import TranscriptionRefused, UnexpectedAnswer
from engine.audio import SAMPLE_BYTES
from engine.retry_after import read_retry_after
from engine.settings import AsrSettings

NAME = "openai-asr"
_ROOM = 256  # waiting finals, and waiting partials: one of each for 64 conversations, four times over
_KEEP_IDLE_S = 60.0
_RATE_HZ = 16_000
_SHORTEST_BYTES = _RATE_HZ // 10 * SAMPLE_BYTES  # OpenAI refuses less than a tenth of a second, which holds no word


class _Word(msgspec.Struct):
    word: str
    start: float
    end: float


class _Answer(msgspec.Struct):
    """Of `json` the text alone, of `verbose_json` the rest too; servers leave out what they do not know."""

    text: str
    language: str | None = None
    words: tuple[_Word, ...] | None = None


class HttpRecognizer:
    """One server, `settings.parallel` requests at once."""

    name = NAME

    def __init__(self, settings: AsrSettings, wall: Callable[[], float] = time.time) -> None:
        self._settings, self._wall = settings, wall
        self._url = f"{settings.url.rstrip('/')}/audio/transcriptions"
        self._desk = Desk(self._serve, settings.parallel, _ROOM)
        self._http: httpx.AsyncClient | None = None

    async def start(self) -> None:
        headers = {"Authorization": f"Bearer {self._settings.api_key}"} if self._settings.api_key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._settings.parallel, keepalive_expiry=_KEEP_IDLE_S)
        timeout = httpx.Timeout(self._settings.answer_s, connect=self._settings.connect_s)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout, follow_redirects=False)

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def health(self) -> Health:
        """Ready without having asked the server: each call finds out."""
        return Health(ready=self._http is not None, detail=self._settings.url)

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        if self._http is None:
            raise EngineNotReady(f"{NAME} is not started")
        if len(transcription.pcm) < _SHORTEST_BYTES:
            return Transcript(text="")
        return await self._desk.transcribe(transcription)

    def cancel(self, utterance: str) -> None:
        self._desk.cancel(utterance)

    async def _serve(self, wanted: Transcription) -> Transcript:
        if self._http is None:
            raise EngineNotReady(f"{NAME} was closed")
        files = {"file": ("speech.wav", to_wav(wanted.pcm), "audio/wav")}
        try:
            async with asyncio.timeout(self._settings.answer_s):  # httpx alone would time each read by itself
                response = await self._http.post(self._url, data=self._fields(wanted), files=files)
        except httpx.ConnectTimeout as error:
            raise EngineNotReady(f"{NAME}: no connection within {self._settings.connect_s:g} s") from error
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EngineStalled(f"{NAME}: no answer within {self._settings.answer_s:g} s") from error
        except httpx.HTTPError as error:
            raise EngineNotReady(f"{NAME}: cannot reach the server: {type(error).__name__}") from error
        if response.status_code != 200:
            raise self._typed(response)
        return _read(response.content, wanted)

    def _fields(self, wanted: Transcription) -> dict[str, str | list[str]]:
        fields: dict[str, str | list[str]] = {"model": self._settings.model, "response_format": "json", "temperature": "0"}
        if wanted.words:
            fields |= {"response_format": "verbose_json", "timestamp_granularities[]": ["word"]}
        if wanted.language:
            fields["language"] = wanted.language
        return fields

    def _typed(self, response: httpx.Response) -> EngineError:
        status = response.status_code
        failure: type[EngineError] = TranscriptionRefused
        if status == 429:
            failure = EngineBusy
        elif status >= 500:
            failure = EngineNotReady
        error = failure(f"{NAME}: expected a transcript, got HTTP {status}")
        error.retry_after_s = read_retry_after(response.headers.get("Retry-After"), self._wall())
        return error


def _read(content: bytes, wanted: Transcription) -> Transcript:
    try:
        answer = msgspec.json.decode(content, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnexpectedAnswer(f"{NAME}: expected JSON with a text, got {len(content)} other bytes") from error
    words = tuple(
        HeardWord(text=word.word.strip(), start_ms=round(word.start * 1000), end_ms=round(word.end * 1000)) for word in answer.words or ()
    )
    return Transcript(text=answer.text.strip(), language=_tag(answer.language) or wanted.language, words=words)


def _tag(language: str | None) -> str | None:
    """A BCP 47 primary tag, where the server says one and not a language's English name (OpenAI says "english")."""
    return language if language is not None and 2 <= len(language) <= 3 else None


def to_wav(pcm: bytes) -> bytes:
    """A WAV file of mono s16le at 16 kHz; half a sample is left out. Source: RIFF WAVE, "Multimedia Programming Interface" (1991)."""
    pcm = pcm[: len(pcm) // SAMPLE_BYTES * SAMPLE_BYTES]
    head = [b"RIFF", (36 + len(pcm)).to_bytes(4, "little"), b"WAVEfmt ", (16).to_bytes(4, "little"), (1).to_bytes(2, "little")]
    head += [(1).to_bytes(2, "little"), _RATE_HZ.to_bytes(4, "little"), (_RATE_HZ * SAMPLE_BYTES).to_bytes(4, "little")]
    head += [SAMPLE_BYTES.to_bytes(2, "little"), (16).to_bytes(2, "little"), b"data", len(pcm).to_bytes(4, "little")]
    return b"".join((*head, pcm))
