"""The settings of one session: what `session.start` and `session.update` asked for, checked against what there is.

Pure. A wrong wish is refused with what would be valid; nothing is replaced silently.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from engine.api import Synthesizer
from gateway.config import Persona, Settings
from gateway.errors import BadMessage, NotAvailable, UnknownPersona, UnknownVoice, UnsupportedCodec
from gateway.events import AudioOut, StartSession, UpdateSession
from gateway.speech.markup import MarkupRules, emotion_instructions

LISTED = 8  # voices named in an error; the whole list is in `session.ready`


class Profile(Struct, frozen=True, kw_only=True):
    """Effective settings of a session."""

    instructions: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    audio_out: AudioOut
    allow_barge_in: bool
    emotion: bool

    def prompt(self, rules: MarkupRules, instructions: str | None = None) -> str:
        """What the model is told: the given or own instructions, and how to mark feelings where that is wanted."""
        told = self.instructions if instructions is None else instructions
        return f"{told}\n\n{emotion_instructions(rules, self.language)}" if self.emotion else told

    def updated(self, update: UpdateSession, voices: Synthesizer) -> Profile:
        """With the given settings changed. Raises `UnknownVoice`, `BadMessage`."""
        wishes = {name: getattr(update, name) for name in ("instructions", "language", "voice", "output", "allow_barge_in")}
        given = {name: value for name, value in wishes.items() if value is not None}
        if "voice" in given:
            _check_voice(given["voice"], voices)
        if "language" in given:
            _check_language(given["language"])
        return structs.replace(self, **given)


def started(start: StartSession, settings: Settings, voices: Synthesizer) -> Profile:
    """The profile that `session.start` asks for.

    Raises `UnknownPersona`, `UnknownVoice`, `UnsupportedCodec`, `NotAvailable`, `BadMessage`.
    """
    persona = _persona(start.persona, settings)
    voice = start.voice or persona.voice or settings.tts.voice
    if voice:
        _check_voice(voice, voices)
    else:
        voice = voices.voices()[0].id if voices.voices() else ""
    if start.audio_in is not None:
        raise NotAvailable("This gateway takes no audio in; expected session.start without `audio_in`.")
    _check_audio_out(start.audio_out)
    language = start.language or persona.language or settings.language
    _check_language(language)
    return Profile(
        instructions=start.instructions if start.instructions is not None else persona.instructions,
        language=language,
        voice=voice,
        output=start.output,
        audio_out=start.audio_out,
        allow_barge_in=start.allow_barge_in,
        emotion=settings.speech.emotion if start.emotion is None else start.emotion,
    )


def _persona(name: str | None, settings: Settings) -> Persona:
    if name is None:
        return Persona(instructions=settings.instructions)
    persona = settings.personas.get(name)
    if persona is None:
        known = ", ".join(sorted(settings.personas)) or "none is configured"
        raise UnknownPersona(f"There is no persona {name[:80]!r}; expected one of: {known}.")
    return persona


def _check_voice(voice: str, voices: Synthesizer) -> None:
    known = [known.id for known in voices.voices()]
    if voice not in known:
        listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
        raise UnknownVoice(f"There is no voice {voice[:80]!r}; expected one of: {listed or 'none is available'}.")


def _check_language(language: str) -> None:
    if not 2 <= len(language) <= 35 or not language.replace("-", "").isalnum() or not language.isascii():
        raise BadMessage(f"language is {language[:40]!r}; expected a language tag such as `en` or `zh-CN`.")


def _check_audio_out(wish: AudioOut) -> None:
    if wish.codec != "pcm16":
        raise UnsupportedCodec(f"audio_out.codec {wish.codec!r} is not available; expected `pcm16`.")
    if not 8000 <= wish.rate_hz <= 48_000:
        raise UnsupportedCodec(f"audio_out.rate_hz is {wish.rate_hz}; expected 8000 to 48000.")
