"""The settings of one session: what `session.start` and `session.update` asked for, checked against what there is.

Pure. A wrong wish is refused with what would be valid; nothing is replaced silently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct, structs

from engine.api import Synthesizer, Voice
from gateway.auth import FULL_RIGHTS, Rights
from gateway.config import Persona, Settings
from gateway.endpointing import in_force
from gateway.errors import BadMessage, NotAvailable, NotPermitted, TextTooLong, UnknownPersona, UnknownVoice, UnsupportedCodec
from gateway.events import AudioIn, AudioOut, Endpointing, RequestReply, SessionUpdated, StartSession, Tool, UpdateSession
from gateway.speech.markup import MarkupRules, emotion_instructions
from gateway.voice_choice import primary

CHANGEABLE = (
    "instructions", "language", "voice", "output", "audio_out", "speed", "allow_barge_in", "turn_detection", "endpointing", "auto_reply",
    "tools", "tool_choice", "max_tokens", "temperature",
)  # fmt: skip
MAX_INSTRUCTIONS_BYTES = 32_768  # they stand in every prompt
MAX_TOOLS = 128
MAX_TOOL_BYTES = 32_768  # they stand in every prompt
MAX_USER = 128  # characters of the client's own name for its user, kept for usage records
MAX_TOKENS = 4096  # of one reply; the server's own bound may be lower
MAX_TEMPERATURE = 2.0  # beyond it models write noise
SPEEDS = (0.5, 2.0)  # slower or faster voices slur or squeak, and feelings come on top
G711_HZ = 8_000
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NO_ENCODINGS: Mapping[str, Sequence[int]] = {}
LISTED = 8  # voices named in an error; the whole list is in `session.ready`


class Profile(Struct, frozen=True, kw_only=True):
    """Effective settings of a session. `takes_tools`: whether its language model does."""

    instructions: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    audio_out: AudioOut
    allow_barge_in: bool
    emotion: bool
    speed: float = 1.0
    turn_detection: Literal["auto", "push_to_talk"] = "auto"
    own_endpointing: Endpointing = Endpointing()  # without a wish
    endpointing: Endpointing = Endpointing()
    auto_reply: bool = True
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    tool_flow: Literal["same_turn", "next_turn"] = "same_turn"
    is_clocked: bool = False
    takes_tools: bool = True
    user: str = ""
    rights: Rights = FULL_RIGHTS

    def prompt(self, rules: MarkupRules) -> str:
        """What the model is told: the instructions, and how to mark feelings where that is wanted."""
        return _told(self.instructions, rules, self.language, emotion=self.emotion)

    def updated(
        self, update: UpdateSession | RequestReply, voices: Synthesizer, encodings: Mapping[str, Sequence[int]] = _NO_ENCODINGS
    ) -> Profile:
        """With the given settings changed, for the session or for one reply. `encodings`: as for `started`.

        Raises `UnknownVoice`, `UnsupportedCodec`, `NotPermitted`, `NotAvailable`, `TextTooLong`, `BadMessage`.
        """
        wishes = {name: getattr(update, name, None) for name in CHANGEABLE}
        given: dict[str, Any] = {name: value for name, value in wishes.items() if value is not None}  # Any: of each field's own type
        _check_given(self.rights, given.get("instructions"), given.get("tools"))
        if "voice" in given:
            _check_voice(given["voice"], voices)
        if "language" in given:
            _language(given["language"])
        if given.get("max_tokens") == "inf":
            given["max_tokens"] = None
        if "audio_out" in given:
            given["audio_out"] = _audio_out(given["audio_out"], encodings)
        if "speed" in given:
            given["speed"] = _speed(given["speed"])
        if "endpointing" in given:
            given["endpointing"] = in_force(self.own_endpointing, given["endpointing"])
        if "temperature" in given:
            _check_temperature(given["temperature"])
        changed = structs.replace(self, **given)
        check_tools(changed.tools, are_taken=self.takes_tools)
        _check_choice(changed.tool_choice, changed.tools)
        _check_max_tokens(changed.max_tokens)
        return changed

    def granted(self, rights: Rights, persona: str | None, settings: Settings) -> Profile:
        """With the rights that its key has now; `persona`: what `session.start` named. What they do not allow falls back to what they do.

        Raises `UnknownPersona`.
        """
        is_free = rights.instructions and rights.persona in ("", self.rights.persona, persona)
        allowed = rights.persona or self.rights.persona or persona
        return structs.replace(
            self,
            rights=rights,
            instructions=self.instructions if is_free else _persona(allowed, settings).instructions,
            tools=self.tools if rights.tools else (),
            tool_choice=self.tool_choice if rights.tools else "auto",
        )

    def offered_tools(self) -> tuple[dict[str, Any], ...]:  # Any: JSON schema
        """The tools that the model is told of, as chat templates take them; `required` is told and not enforced."""
        kind, _, name = self.tool_choice.partition(":")
        offered = [tool for tool in self.tools if self.tool_choice != "none" and (kind != "function" or tool.name == name)]
        return tuple(
            {"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}
            for tool in offered
        )

    def described(self, ref: str | None = None) -> SessionUpdated:
        """What is in force, as the client may see it: a persona's instructions are not shown to a key that may not give its own."""
        return SessionUpdated(
            ref=ref,
            instructions=self.instructions if self.rights.instructions else "",
            language=self.language,
            voice=self.voice,
            output=self.output,
            allow_barge_in=self.allow_barge_in,
            turn_detection=self.turn_detection,
            tools=self.tools,
            tool_choice=self.tool_choice,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            audio_out=self.audio_out,
            speed=self.speed,
            endpointing=self.endpointing,
        )


def started(
    start: StartSession,
    settings: Settings,
    voices: Synthesizer,
    rights: Rights = FULL_RIGHTS,
    *,
    can_listen: bool = False,
    takes_tools: bool = True,
    encodings: Mapping[str, Sequence[int]] = _NO_ENCODINGS,
) -> Profile:
    """The profile that `session.start` asks for, within the rights of its key. `can_listen`: whether this gateway takes audio in;
    `takes_tools`: whether its language model takes them; `encodings`: the codecs beside pcm16 that it gives out, and their rates.

    Raises `UnknownPersona`, `UnknownVoice`, `UnsupportedCodec`, `NotAvailable`, `NotPermitted`, `TextTooLong`, `BadMessage`.
    """
    _check_given(rights, start.instructions, start.tools or None)
    persona = _persona(_permitted_persona(start.persona, rights), settings)
    check_tools(start.tools, are_taken=takes_tools)
    _check_audio_in(start.audio_in, can_listen=can_listen)
    language = _language(start.language or persona.language or settings.language)
    own = Endpointing(speech_probability=settings.endpointing.speech_probability, preroll_ms=settings.hearing.preroll_ms)
    return Profile(
        instructions=start.instructions if start.instructions is not None else persona.instructions,
        language=language,
        voice=_voice(start.voice or persona.voice or settings.tts.voice, voices, language),
        output=start.output,
        audio_out=_audio_out(start.audio_out, encodings),
        speed=1.0 if start.speed is None else _speed(start.speed),
        allow_barge_in=start.allow_barge_in,
        emotion=settings.speech.emotion if start.emotion is None else start.emotion,
        turn_detection=start.turn_detection,
        own_endpointing=own,
        endpointing=own,
        tools=start.tools,
        tool_flow=start.tool_flow,
        is_clocked=start.playout == "clock",
        user=(start.user or "")[:MAX_USER],
        takes_tools=takes_tools,
        rights=rights,
    )


def default_voice(voices: Sequence[Voice], language: str) -> str:
    """For a session that names none: the first whose own language it is, else the first that speaks it, else the first of all."""
    wanted = primary(language)
    own = [voice for voice in voices if primary(voice.languages[0]) == wanted]
    able = [voice for voice in voices if wanted in map(primary, voice.languages)]
    return next((voice.id for voice in (*own, *able, *voices)), "")


def persona_prompts(settings: Settings, rules: MarkupRules, templates: Sequence[str] = ()) -> tuple[str, ...]:
    """What the model is told by sessions that ask for nothing, by each persona, and by clients that give one of these templates."""
    prompts = []
    own = (Persona(instructions=text) for text in templates)
    for persona in (Persona(instructions=settings.instructions), *settings.personas.values(), *own):
        language = persona.language or settings.language
        prompts.append(_told(persona.instructions, rules, language, emotion=settings.speech.emotion))
    return tuple(prompts)


def check_tools(tools: Sequence[Tool], *, are_taken: bool = True) -> None:
    """Names, number and size, and whether the language model takes any. Raises `BadMessage`, `NotAvailable`."""
    if tools and not are_taken:
        raise NotAvailable(f"Got {len(tools)} tools, and the language model of this gateway takes none; expected no `tools`.")
    if len(tools) > MAX_TOOLS:
        raise BadMessage(f"There are {len(tools)} tools; expected at most {MAX_TOOLS}.")
    names = [tool.name for tool in tools]
    for name in names:
        if not _TOOL_NAME.fullmatch(name):
            raise BadMessage(f"A tool is named {name[:80]!r}; expected 1 to 64 letters, digits, `_` or `-`.")
        if names.count(name) > 1:
            raise BadMessage(f"Two tools are named {name!r}.")
    n_bytes = len(msgspec.json.encode(tools))
    if n_bytes > MAX_TOOL_BYTES:
        raise BadMessage(f"The tools have {n_bytes} bytes; expected at most {MAX_TOOL_BYTES}.")


def _check_choice(choice: str, tools: Sequence[Tool]) -> None:
    kind, _, name = choice.partition(":")
    if choice in ("auto", "none", "required") or (kind == "function" and any(tool.name == name for tool in tools)):
        return
    raise BadMessage(f"tool_choice is {choice[:80]!r}; expected auto, none, required, or function:NAME of a tool in `tools`.")


def _check_max_tokens(max_tokens: int | None) -> None:
    if max_tokens is not None and not 1 <= max_tokens <= MAX_TOKENS:
        raise BadMessage(f"max_tokens is {max_tokens}; expected 1 to {MAX_TOKENS}, or inf.")


def _check_temperature(temperature: float) -> None:
    if not 0 <= temperature <= MAX_TEMPERATURE:
        raise BadMessage(f"temperature is {temperature}; expected 0 to {MAX_TEMPERATURE:g}.")


def _speed(wish: float) -> float:
    """To two digits: kept phrases are made once for each speed."""
    slowest, fastest = SPEEDS
    if not slowest <= wish <= fastest:
        raise BadMessage(f"speed is {wish}; expected {slowest:g} to {fastest:g}.")
    return round(wish, 2)


def _check_given(rights: Rights, instructions: str | None, tools: Sequence[Tool] | None) -> None:
    if instructions is not None and not rights.instructions:
        raise NotPermitted("This key may not give instructions; expected none.")
    n_bytes = len((instructions or "").encode("utf-8", "replace"))
    if n_bytes > MAX_INSTRUCTIONS_BYTES:
        raise TextTooLong(f"The instructions have {n_bytes} bytes; expected at most {MAX_INSTRUCTIONS_BYTES}.")
    if tools and not rights.tools:
        raise NotPermitted("This key may not give tools; expected none.")


def _told(instructions: str, rules: MarkupRules, language: str, *, emotion: bool) -> str:
    return f"{instructions}\n\n{emotion_instructions(rules, language)}" if emotion else instructions


def _permitted_persona(wish: str | None, rights: Rights) -> str | None:
    if rights.persona and wish not in (None, rights.persona):
        raise NotPermitted(f"This key speaks as {rights.persona!r}; expected no other persona.")
    return rights.persona or wish


def _persona(name: str | None, settings: Settings) -> Persona:
    if name is None:
        return Persona(instructions=settings.instructions)
    persona = settings.personas.get(name)
    if persona is None:
        known = ", ".join(sorted(settings.personas)) or "none is configured"
        raise UnknownPersona(f"There is no persona {name[:80]!r}; expected one of: {known}.")
    return persona


def _voice(wish: str, voices: Synthesizer, language: str) -> str:
    if not wish:
        return default_voice(voices.voices(), language)
    _check_voice(wish, voices)
    return wish


def _check_voice(voice: str, voices: Synthesizer) -> None:
    known = [known.id for known in voices.voices()]
    if voice not in known:
        listed = ", ".join(known[:LISTED]) + (", ..." if len(known) > LISTED else "")
        raise UnknownVoice(f"There is no voice {voice[:80]!r}; expected one of: {listed or 'none is available'}.")


def _language(wish: str) -> str:
    if not 2 <= len(wish) <= 35 or not wish.replace("-", "").isalnum() or not wish.isascii():
        raise BadMessage(f"language is {wish[:40]!r}; expected a language tag such as `en` or `zh-CN`.")
    return wish


def _check_audio_in(wish: AudioIn | None, *, can_listen: bool) -> None:
    if wish is None:
        return
    if not can_listen:
        raise NotAvailable("This gateway takes no audio in; expected session.start without `audio_in`.")
    if wish.codec == "pcm16" and not 8000 <= wish.rate_hz <= 48_000:
        raise UnsupportedCodec(f"audio_in.rate_hz is {wish.rate_hz}; expected 8000 to 48000.")


def _audio_out(wish: AudioOut, encodings: Mapping[str, Sequence[int]]) -> AudioOut:
    """The format that is sent. G.711 has one rate: the default of other codecs counts as not given."""
    if wish.codec == "pcm16":
        if not 8000 <= wish.rate_hz <= 48_000:
            raise UnsupportedCodec(f"audio_out.rate_hz is {wish.rate_hz}; expected 8000 to 48000.")
        return wish
    if wish.codec in ("g711u", "g711a"):
        if wish.rate_hz not in (G711_HZ, AudioOut().rate_hz):
            raise UnsupportedCodec(f"audio_out.rate_hz is {wish.rate_hz}; {wish.codec} has {G711_HZ} alone.")
        return AudioOut(codec=wish.codec, rate_hz=G711_HZ)
    if wish.codec not in encodings:
        known = ", ".join(f"`{codec}`" for codec in ("pcm16", "g711u", "g711a", *encodings))
        raise UnsupportedCodec(f"audio_out.codec {wish.codec!r} is not available here, its library is missing; expected {known}.")
    if wish.rate_hz not in encodings[wish.codec]:
        rates = ", ".join(map(str, encodings[wish.codec]))
        raise UnsupportedCodec(f"audio_out.rate_hz is {wish.rate_hz}; {wish.codec} takes {rates}.")
    return wish
