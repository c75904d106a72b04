"""What events are made of: closed sets of words, and the structures inside an event's fields."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant"]
ItemKind = Literal["message", "call", "result"]
Cut = Literal["stop", "newline", "clause", "length", "timer", "end"]
TurnStatus = Literal["completed", "interrupted", "superseded", "failed", "refused"]
SegmentStatus = Literal["ok", "no_voice", "failed"]
InterruptReason = Literal["cancel", "text", "speech"]
Eagerness = Literal["low", "medium", "high", "auto"]


class AudioIn(Struct, frozen=True, kw_only=True):
    """Format of the client's microphone frames."""

    codec: Literal["pcm16", "opus", "g711u", "g711a"] = "pcm16"
    rate_hz: int = 16_000


class AudioOut(Struct, frozen=True, kw_only=True):
    """Format of our audio frames: mono, s16le for pcm16; G.711 has one rate, 8,000 Hz, which need not be given."""

    codec: Literal["pcm16", "opus", "mp3", "g711u", "g711a"] = "pcm16"
    rate_hz: int = 24_000


class Endpointing(Struct, frozen=True, kw_only=True):
    """When somebody begins to speak and has finished; what is absent is the gateway's own.

    `speech_probability`: from which a sound counts as speech, 0 to 1. `preroll_ms`: sound kept from before the first word. `silence_ms`:
    exactly this silence ends an utterance, instead of a judgement by sound and words. `eagerness`: how soon that judgement answers
    somebody who may not have finished. `idle_timeout_ms`: after so long a silence behind a reply the assistant speaks again, once.
    """

    speech_probability: float | None = None
    preroll_ms: int | None = None
    silence_ms: int | None = None
    eagerness: Eagerness = "auto"
    idle_timeout_ms: int | None = None


class HistoryItem(Struct, frozen=True, kw_only=True):
    """An earlier message that seeds the conversation."""

    role: Role
    text: str


class Resume(Struct, frozen=True, kw_only=True):
    """Asks for an earlier session; `last_seq` is the last frame that arrived."""

    session_id: str
    token: str
    last_seq: int = 0


class Limits(Struct, frozen=True, kw_only=True):
    """What the client must keep to."""

    lead_ms: int
    idle_s: float
    message_bytes: int
    text_bytes: int


class VoiceInfo(Struct, frozen=True, kw_only=True):
    """A voice that `session.start` may name."""

    id: str
    languages: tuple[str, ...]


class Word(Struct, frozen=True, kw_only=True):
    """When a word of `spoken` sounds, from the segment's start."""

    start_ms: int
    end_ms: int
    start: int
    end: int


class UsageInfo(Struct, frozen=True, kw_only=True):
    """Real token counts."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class Timeline(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds from the commit (or end of speech); absent when it did not happen."""

    ttft_ms: float | None = None
    first_segment_ms: float | None = None
    first_audio_ms: float | None = None
    first_playout_ms: float | None = None
    reply_done_ms: float | None = None


class Tool(Struct, frozen=True, kw_only=True):
    """A function that the model may ask the client to call; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}  # Any: a JSON schema, given to the model as it is


class ItemInfo(Struct, frozen=True, kw_only=True):
    """One item of a conversation, or of a reply's own context.

    `text` is a message's words, a call's arguments (JSON) or a result's output.
    As input, a lone `item_id` names an item of the conversation.
    """

    item_id: str | None = None
    kind: ItemKind = "message"
    role: Role = "user"
    text: str = ""
    call_id: str | None = None
    name: str | None = None
