"""Phrases that an operator has configured (greetings, fillers) are made once and kept on disk; nothing else ever is.

Wraps the other voices behind the same promise. A file is written only after the whole phrase was spoken by the voice that was
asked for, and appears whole or not at all. What users or models say is never written: only exact matches of the configured texts are.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from engine.api import Expectant, Health, SpeechChunk, Style, Synthesis, Synthesizer, Voice, WordTiming
from engine.audio import ms_to_bytes
from engine.observer import Observable, VoiceObserver

_VERSION = 1  # of the files; raised when the same key would sound otherwise
_LONGEST_BYTES = 8 << 20  # a minute and a half at 48 kHz
_CHUNK_MS = 200

log = logging.getLogger(__name__)


class Kept(Struct, frozen=True, kw_only=True):
    """A phrase on disk."""

    pcm: bytes
    mp3: bytes
    words: tuple[WordTiming, ...]


class KeptPhrases:
    """`phrases` are texts as they are asked for: one segment each. `folder` is made when it is needed."""

    def __init__(self, voices: Synthesizer, folder: Path, phrases: Iterable[str]) -> None:
        self._voices, self._folder = voices, folder
        self._phrases = frozenset(phrases)

    @property
    def name(self) -> str:
        return self._voices.name

    async def start(self) -> None:
        await self._voices.start()

    async def close(self) -> None:
        await self._voices.close()

    def health(self) -> Health:
        return self._voices.health()

    def voices(self) -> tuple[Voice, ...]:
        return self._voices.voices()

    def can_speak(self, text: str, voice: str) -> bool:
        return self._voices.can_speak(text, voice)

    def expect(self, voice: str) -> None:
        """As the voices do."""
        able: object = self._voices
        if isinstance(able, Expectant):
            able.expect(voice)

    def observe(self, observer: VoiceObserver) -> None:
        """As the voices do."""
        able: object = self._voices
        if isinstance(able, Observable):
            able.observe(observer)

    async def prepare(self, voice: str, language: str, style: Style, sample_rate_hz: int) -> None:
        """Make every phrase that is not kept yet, so that the first listener does not wait. Raises `EngineError`."""
        for number, text in enumerate(sorted(self._phrases)):
            wanted = Synthesis(
                request_id=f"phrase-{number}", text=text, voice=voice, language=language, style=style, sample_rate_hz=sample_rate_hz
            )
            async with aclosing(self.synthesize(wanted)) as chunks:
                async for _ in chunks:
                    pass

    async def synthesize(self, synthesis: Synthesis) -> AsyncGenerator[SpeechChunk, None]:
        """From disk where it is kept, else from the voices. Raises as they do."""
        path = self._path(synthesis) if synthesis.text in self._phrases else None
        kept = await asyncio.to_thread(_read, path) if path is not None else None
        if kept is not None:
            for chunk in _chunks(kept, synthesis):
                yield chunk
            return
        spoken: list[SpeechChunk] = []
        async with aclosing(self._voices.synthesize(synthesis)) as chunks:
            async for chunk in chunks:
                if path is not None:
                    spoken.append(chunk)
                yield chunk
        if path is not None and spoken and all(chunk.voice in (None, synthesis.voice) for chunk in spoken):
            await asyncio.to_thread(_write, path, _joined(spoken))

    def _path(self, synthesis: Synthesis) -> Path:
        asked = structs.replace(synthesis, request_id="")
        return self._folder / f"{hashlib.sha256(msgspec.msgpack.encode((_VERSION, asked))).hexdigest()}.phrase"


def _joined(chunks: list[SpeechChunk]) -> Kept:
    return Kept(
        pcm=b"".join(chunk.pcm for chunk in chunks),
        mp3=b"".join(chunk.mp3 for chunk in chunks),
        words=tuple(word for chunk in chunks for word in chunk.words),
    )


def _chunks(kept: Kept, synthesis: Synthesis) -> list[SpeechChunk]:
    """In pieces, so that a phrase is paced and canceled as speech; words and MP3 come with the first."""
    size = ms_to_bytes(_CHUNK_MS, synthesis.sample_rate_hz)
    pieces = [kept.pcm[at : at + size] for at in range(0, len(kept.pcm), size)] or [b""]
    first = SpeechChunk(pcm=pieces[0], words=kept.words, voice=synthesis.voice, mp3=kept.mp3)
    return [first, *(SpeechChunk(pcm=piece, voice=synthesis.voice) for piece in pieces[1:])]


def _read(path: Path) -> Kept | None:
    """None when there is none, or it is broken: then it is made anew."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Kept)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        log.warning("a kept phrase cannot be read", extra={"path": str(path), "fault": type(error).__name__})
        return None


def _write(path: Path, kept: Kept) -> None:
    """A folder that cannot be written costs time, not speech."""
    data = msgspec.msgpack.encode(kept)
    if len(data) > _LONGEST_BYTES:
        return
    new = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(data)
        new.replace(path)
    except OSError as error:
        log.warning("a phrase cannot be kept", extra={"path": str(path), "fault": type(error).__name__})
