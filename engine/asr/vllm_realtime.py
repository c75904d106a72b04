"""vLLM's realtime transcription socket as a `Recognizer`: audio is sent once, as it comes, and text comes back while somebody speaks.

One socket for each utterance. A request sends what is new since the last one; nothing reads in between, the socket holds what came.
Source: vLLM, vllm/entrypoints/openai/realtime: `session.update` names the model, the first `commit` starts, a `final` one ends.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from engine.api import EngineBusy, EngineError, EngineNotReady, EngineStalled, Health, Transcript, Transcription
from engine.asr.errors import TranscriptionRefused, UnexpectedAnswer
from engine.audio import SAMPLE_BYTES
from engine.settings import AsrSettings

NAME = "vllm-asr"
_MOST_STREAMS = 256  # one for each of 64 conversations, four times over; each keeps a place in vLLM's batch
_IDLE_S = 30.0  # an utterance that nobody asked about for so long was forgotten by its owner
_SETTLED_S = 0.1  # a partial is what came until there was nothing new for so long,
_LONGEST_S = 0.5  # or this
_APPEND_BYTES = 32_000  # a second
_CLOSE_S = 1.0
_MESSAGE_BYTES = 1 << 20


class _Event(msgspec.Struct):
    """What the server says; `error` is a text there, not an object as OpenAI's."""

    type: str
    delta: str = ""
    text: str = ""
    error: str = ""
    code: str | None = None


class _Stream:
    """One utterance's socket."""

    def __init__(self, socket: ClientConnection, now_s: float) -> None:
        self.socket = socket
        self.used_s = now_s
        self.sent_bytes = 0
        self.text = ""

    async def append(self, pcm: bytes) -> None:
        """Send what is new. A cancel loses nothing: what was counted is in the socket."""
        end = len(pcm) // SAMPLE_BYTES * SAMPLE_BYTES
        while self.sent_bytes < end:
            piece = pcm[self.sent_bytes : min(end, self.sent_bytes + _APPEND_BYTES)]
            self.sent_bytes += len(piece)
            await self.say("input_audio_buffer.append", audio=base64.b64encode(piece).decode())

    async def say(self, kind: str, **fields: str | bool) -> None:
        await self.socket.send(msgspec.json.encode({"type": kind, **fields}).decode())

    async def hear(self) -> _Event:
        """The next event; raises for an error."""
        data = await self.socket.recv()
        try:
            event = msgspec.json.decode(data, type=_Event)
        except msgspec.DecodeError as error:
            raise UnexpectedAnswer(f"{NAME}: expected an event, got {len(data)} other bytes") from error
        if event.type == "error":
            raise (EngineError if event.code == "processing_error" else TranscriptionRefused)(f"{NAME}: the server says error {event.code}")
        self.text += event.delta
        return event


class VllmRecognizer:
    """One vLLM server with a realtime transcription model."""

    name = NAME

    def __init__(self, settings: AsrSettings) -> None:
        self._settings = settings
        scheme, _, rest = settings.url.partition("://")
        self._url = f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{rest.rstrip('/')}/realtime"
        self._streams: dict[str, _Stream] = {}
        self._locks: dict[str, asyncio.Lock] = {}  # one request of an utterance at a time
        self._callers: dict[str, list[_Caller]] = {}
        self._is_started = False

    async def start(self) -> None:
        self._is_started = True

    async def close(self) -> None:
        self._is_started = False
        for utterance in list(self._callers):
            self.cancel(utterance)
        streams, self._streams = list(self._streams.values()), {}
        await asyncio.gather(*(_close(stream) for stream in streams))

    def health(self) -> Health:
        """Ready without having asked the server: each call finds out."""
        return Health(ready=self._is_started, detail=self._settings.url)

    async def transcribe(self, transcription: Transcription) -> Transcript | None:
        """As promised; a partial is what the server has said so far. Without word times, and the model tells the language itself."""
        if not self._is_started:
            raise EngineNotReady(f"{NAME} is not started")
        utterance = transcription.utterance
        caller = _Caller(transcription.is_final)
        callers = self._callers.setdefault(utterance, [])
        for earlier in callers:
            if transcription.is_final or not earlier.is_final:
                earlier.dismiss()
        callers.append(caller)
        try:
            async with caller.scope, self._locks.setdefault(utterance, asyncio.Lock()):
                return await self._ask(transcription)
        except (TimeoutError, EngineError):
            if not self._is_started:
                raise EngineNotReady(f"{NAME} was closed") from None
            if caller.is_needless():
                return None
            raise
        finally:
            await self._leave(utterance, caller)

    def cancel(self, utterance: str) -> None:
        for caller in self._callers.get(utterance, ()):
            caller.dismiss()
        stream = self._streams.pop(utterance, None)
        if stream is not None:
            stream.socket.transport.abort()  # nobody waits for a farewell; the server sees the end and frees the request

    async def _leave(self, utterance: str, caller: _Caller) -> None:
        callers = self._callers[utterance]
        callers.remove(caller)
        if not callers:
            del self._callers[utterance], self._locks[utterance]
        if caller.is_final and (stream := self._streams.pop(utterance, None)) is not None:
            await _close(stream)

    async def _ask(self, wanted: Transcription) -> Transcript:
        if len(wanted.pcm) < SAMPLE_BYTES:
            return Transcript(text="", language=wanted.language)
        async with self._typed_errors(wanted.utterance):
            async with asyncio.timeout(self._settings.answer_s):
                stream = await self._stream(wanted)
                await stream.append(wanted.pcm)
                text = await self._finish(stream) if wanted.is_final else await self._listen(stream)
        return Transcript(text=text.strip(), language=wanted.language)

    async def _finish(self, stream: _Stream) -> str:
        await stream.say("input_audio_buffer.commit", final=True)
        while True:
            event = await stream.hear()
            if event.type == "transcription.done":
                return event.text

    async def _listen(self, stream: _Stream) -> str:
        """What came, once it settles."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_S):
                while True:
                    async with asyncio.timeout(_SETTLED_S):
                        await stream.hear()
        return stream.text

    async def _stream(self, wanted: Transcription) -> _Stream:
        now_s = asyncio.get_running_loop().time()
        stream = self._streams.get(wanted.utterance)
        if stream is not None and len(wanted.pcm) >= stream.sent_bytes:
            stream.used_s = now_s
            return stream
        if stream is not None:
            self._drop(wanted.utterance)
        self._make_room(now_s)
        headers = {"Authorization": f"Bearer {self._settings.api_key}"} if self._settings.api_key else None
        socket = await connect(
            self._url,
            additional_headers=headers,
            open_timeout=self._settings.connect_s,
            compression=None,
            max_size=_MESSAGE_BYTES,
            proxy=None,
        )
        stream = self._streams[wanted.utterance] = _Stream(socket, now_s)
        await stream.say("session.update", model=self._settings.model)
        await stream.say("input_audio_buffer.commit", final=False)
        return stream

    def _make_room(self, now_s: float) -> None:
        for utterance, stream in list(self._streams.items()):
            if now_s - stream.used_s > _IDLE_S and utterance not in self._callers:
                self._drop(utterance)
        if len(self._streams) >= _MOST_STREAMS:
            raise EngineBusy(f"{NAME}: {len(self._streams)} utterances are open, at most {_MOST_STREAMS} may be")

    def _drop(self, utterance: str) -> None:
        stream = self._streams.pop(utterance, None)
        if stream is not None:
            stream.socket.transport.abort()

    @contextlib.asynccontextmanager
    async def _typed_errors(self, utterance: str) -> AsyncGenerator[None, None]:
        """What the socket raises, as the promise says; the utterance's socket is gone then, and the next request sends everything anew."""
        try:
            yield
        except TimeoutError as error:
            self._drop(utterance)
            raise EngineStalled(f"{NAME}: no answer within {self._settings.answer_s:g} s") from error
        except (OSError, WebSocketException) as error:
            self._drop(utterance)
            raise EngineNotReady(f"{NAME}: the server is not reached: {type(error).__name__}") from error
        except EngineError:
            self._drop(utterance)
            raise


class _Caller:
    """One call of `transcribe`, which a later one may make needless."""

    def __init__(self, is_final: bool) -> None:
        self.is_final = is_final
        self.scope = asyncio.timeout(None)
        self._is_needless = False

    def is_needless(self) -> bool:
        """Whether `dismiss` was called."""
        return self._is_needless

    def dismiss(self) -> None:
        """Nobody needs the answer any more."""
        if self._is_needless:
            return
        self._is_needless = True
        self.scope.reschedule(asyncio.get_running_loop().time())


async def _close(stream: _Stream) -> None:
    """Say goodbye in time."""
    with contextlib.suppress(TimeoutError, OSError, WebSocketException):
        async with asyncio.timeout(_CLOSE_S):
            await stream.socket.close()
