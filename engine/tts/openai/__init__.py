"""Any server with OpenAI's `/v1/audio/speech` as a `Synthesizer`: CosyVoice, Kokoro, vllm-omni and others behind one protocol.

Streams what comes, decoded and at the rate that was asked for. Connections are kept and reused; a cancel closes the answer, which
the server sees. Without word times: an answer that breaks off raises `SpeechCut` without a place.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, cast

import httpx

from engine.api import (
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineStalled,
    Health,
    SpeechChunk,
    SpeechCut,
    Synthesis,
    Voice,
    VoiceUnavailable,
)
from engine.audio import apply_gain, bytes_to_ms
from engine.retry_after import read_retry_after
from engine.settings import SpeechServer
from engine.tts.decoders import Decoders, SpeechDecoders
from engine.tts.decoding import UnexpectedAnswer
from engine.tts.lead import LeadTrim
from engine.tts.lengths import longest_ms
from engine.tts.script import can_read, scripts_of, speakable
from engine.tts.slots import Slots
from engine.tts.style import EmotionChange, VoiceManner

_KEEP_IDLE_S = 60.0
_CLOSE_S = 0.05  # for closing an answer that is not over; a canceled voice is free within 100 ms
_SPEED_BOUNDS = (0.25, 4.0)  # source: OpenAI API reference, createSpeech


class SpeechRefused(EngineError):
    """The server refuses the request: key, model, voice or text."""

    kind = "refused"
    retryable = False


class HttpVoices:
    """One server. `name` is its label in metrics and logs, and begins its voices' ids: `name/voice`."""

    def __init__(
        self,
        name: str,
        settings: SpeechServer,
        manners: Mapping[str, VoiceManner],
        emotions: Mapping[str, EmotionChange],
        *,
        api_key: str = "",
        wall: Callable[[], float] = time.time,
        decoders: Decoders | None = None,
    ) -> None:
        self.name = name
        self._api_key = api_key
        self._settings, self._manners, self._emotions, self._wall = settings, manners, emotions, wall
        self._by_id = {f"{name}/{voice.name}": voice for voice in settings.voices}
        self._slots = Slots(name, settings.streams, settings.waiting, settings.first_audio_s)
        self._decoders = decoders or SpeechDecoders(name)
        self._http: httpx.AsyncClient | None = None

    async def start(self) -> None:
        await self._decoders.start()
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=self._settings.streams, keepalive_expiry=_KEEP_IDLE_S)
        # Only the connection is timed by httpx; audio is timed here, with one deadline for the first and one for each next piece.
        timeout = httpx.Timeout(None, connect=self._settings.connect_s)
        self._http = httpx.AsyncClient(headers=headers, limits=limits, timeout=timeout, follow_redirects=False)

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None
        await self._decoders.close()

    def health(self) -> Health:
        """Ready without having asked the server: each call finds out."""
        return Health(ready=self._http is not None, detail=self._settings.url)

    def voices(self) -> tuple[Voice, ...]:
        return tuple(Voice(id=key, languages=voice.languages, engine=self.name) for key, voice in self._by_id.items())

    def can_speak(self, text: str, voice: str) -> bool:
        known = self._by_id.get(voice)
        return known is not None and can_read(text, scripts_of(known.languages[0]))

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """Stream the segment; nothing speakable gives no chunk.

        Raises, beside the promised errors, `SpeechCut` when some of it came before it broke off.
        """
        if synthesis.voice not in self._by_id:
            raise VoiceUnavailable(f"expected one of {sorted(self._by_id)}, got {synthesis.voice!r}")
        if not speakable(synthesis.text):
            return
        if self._http is None:
            raise EngineNotReady(f"{self.name} is not started")
        async with self._slots.hold(), aclosing(self._stream(self._http, synthesis)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _stream(self, http: httpx.AsyncClient, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        first_deadline = asyncio.get_running_loop().time() + self._settings.first_audio_s
        response = await self._ask(http, synthesis, first_deadline)
        lead, out_ms = LeadTrim(synthesis.sample_rate_hz), 0.0
        try:
            async with aclosing(self._pieces(response, synthesis, first_deadline)) as pieces:
                async for pcm in pieces:
                    pcm = apply_gain(lead.feed(pcm), synthesis.style.volume)
                    out_ms += bytes_to_ms(len(pcm), synthesis.sample_rate_hz)
                    if out_ms > longest_ms(synthesis.text):
                        raise EngineError(f"expected at most {longest_ms(synthesis.text)} ms of audio, got more")
                    if pcm:
                        yield SpeechChunk(pcm=pcm, voice=synthesis.voice)
            if out_ms == 0:
                raise UnexpectedAnswer("expected audio, got none")
        except EngineError as error:
            if out_ms == 0:
                raise
            raise SpeechCut(f"broke off after {out_ms:.0f} ms: {error}") from error
        finally:
            await _close(response)

    async def _ask(self, http: httpx.AsyncClient, synthesis: Synthesis, deadline: float) -> httpx.Response:
        request = http.build_request("POST", f"{self._settings.url.rstrip('/')}/audio/speech", json=self._body(synthesis))
        try:
            async with asyncio.timeout_at(deadline):
                response = await http.send(request, stream=True)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise EngineStalled(f"{self.name}: no answer within {self._settings.first_audio_s} s") from error
        except httpx.HTTPError as error:
            raise EngineNotReady(f"{self.name}: cannot reach the server: {type(error).__name__}") from error
        if response.status_code != 200:
            await _close(response)
            raise self._typed(response)
        return response

    async def _pieces(self, response: httpx.Response, synthesis: Synthesis, deadline: float) -> AsyncGenerator[bytes, None]:
        """PCM as it comes, each piece in time. Raises `EngineStalled`, `EngineError`, `CorruptAudio`."""
        settings = self._settings
        kind = response.headers.get("Content-Type")
        decoder = self._decoders.open(kind, settings.format, settings.pcm_rate_hz, synthesis.sample_rate_hz)
        with contextlib.closing(decoder):
            async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_bytes())) as data:  # httpx types it as its supertype
                while True:
                    piece = await self._next(data, deadline)
                    pcm = await decoder.feed(piece)
                    if pcm:
                        yield pcm
                        deadline = asyncio.get_running_loop().time() + settings.next_s
                    if piece is None:
                        return

    async def _next(self, data: AsyncGenerator[bytes, None], deadline: float) -> bytes | None:
        """The next bytes, None at the end."""
        try:
            async with asyncio.timeout_at(deadline):
                return await anext(data, None)
        except TimeoutError as error:
            raise EngineStalled(f"{self.name}: no audio in time") from error
        except httpx.HTTPError as error:
            raise EngineError(f"{self.name}: the answer broke off: {type(error).__name__}") from error

    def _body(self, synthesis: Synthesis) -> dict[str, Any]:  # Any: JSON
        settings, style = self._settings, synthesis.style
        emotion = style.emotion or "neutral"
        body: dict[str, Any] = {
            "model": settings.model,
            "input": synthesis.text.encode("utf-8", "replace").decode("utf-8"),
            "voice": self._by_id[synthesis.voice].name,
            "response_format": settings.format,
            "speed": round(min(max(style.rate, _SPEED_BOUNDS[0]), _SPEED_BOUNDS[1]), 3),
        }
        instructions = self._emotions.get(emotion, EmotionChange()).instructions
        if settings.instructions and instructions:
            body["instructions"] = instructions
        own_style = self._manners.get(synthesis.voice, VoiceManner()).styles.get(emotion)
        if settings.style_field and own_style:
            body[settings.style_field] = own_style
        return body | settings.extra

    def _typed(self, response: httpx.Response) -> EngineError:
        status = response.status_code
        failure: type[EngineError] = SpeechRefused
        if status == 429:
            failure = EngineBusy
        elif status >= 500:
            failure = EngineNotReady
        error = failure(f"{self.name}: expected audio, got HTTP {status}")
        error.retry_after_s = read_retry_after(response.headers.get("Retry-After"), self._wall())
        return error


async def _close(response: httpx.Response) -> None:
    """Drop what is left of the answer, in time; the connection goes with it unless the answer was read to its end."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await response.aclose()
    except (TimeoutError, httpx.HTTPError):
        pass
