"""The vocabulary of a conversation: what clients ask (imperative) and what we tell them (past tense).

Both codecs speak these item-level events. Field names are the native protocol's own; a field that is None does not
go on the wire. Times and lengths are media milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant"]
Cut = Literal["stop", "newline", "clause", "length", "timer", "end"]
TurnStatus = Literal["completed", "interrupted", "superseded", "failed"]
SegmentStatus = Literal["ok", "no_voice", "failed"]
InterruptReason = Literal["cancel", "text", "speech"]


class AudioIn(Struct, frozen=True, kw_only=True):
    """Format of the client's microphone frames."""

    codec: Literal["pcm16", "opus", "g711u", "g711a"] = "pcm16"
    rate_hz: int = 16_000


class AudioOut(Struct, frozen=True, kw_only=True):
    """Format of our audio frames: mono, s16le for pcm16."""

    codec: Literal["pcm16", "opus", "mp3"] = "pcm16"
    rate_hz: int = 24_000


class HistoryItem(Struct, frozen=True, kw_only=True):
    """An earlier message that seeds the conversation."""

    role: Role
    text: str


class Resume(Struct, frozen=True, kw_only=True):
    """Asks for an earlier session; `last_seq` is the last frame that arrived."""

    session_id: str
    token: str
    last_seq: int = 0


# --- client events -------------------------------------------------------------------------------------------------


class ClientEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what a client may send. `id`: the answer carries it as `ref`; a repeated one is not executed again."""

    id: str | None = None


class StartSession(ClientEvent, frozen=True, kw_only=True, tag="session.start"):
    """Opens the conversation; the first message of a connection."""

    persona: str | None = None
    instructions: str | None = None
    language: str | None = None
    voice: str | None = None
    history: tuple[HistoryItem, ...] = ()
    output: Literal["audio", "text"] = "audio"
    audio_in: AudioIn | None = None
    audio_out: AudioOut = AudioOut()
    turn_detection: Literal["auto", "push_to_talk"] = "auto"
    allow_barge_in: bool = True
    emotion: bool | None = None
    user: str | None = None
    resume: Resume | None = None


class UpdateSession(ClientEvent, frozen=True, kw_only=True, tag="session.update"):
    """Changes the given settings from the next turn on."""

    instructions: str | None = None
    language: str | None = None
    voice: str | None = None
    output: Literal["audio", "text"] | None = None
    allow_barge_in: bool | None = None


class SendText(ClientEvent, frozen=True, kw_only=True, tag="text"):
    """A typed utterance: adds the item and asks for a reply."""

    text: str


class Say(ClientEvent, frozen=True, kw_only=True, tag="say"):
    """Speak this text as the assistant, without asking the model."""

    text: str


class RequestReply(ClientEvent, frozen=True, kw_only=True, tag="reply.create"):
    """Let the assistant speak; `instructions` hold for this reply only."""

    instructions: str | None = None


class AddItem(ClientEvent, frozen=True, kw_only=True, tag="item.add"):
    """Put a message into the conversation, behind `after` or at its end."""

    role: Role
    text: str
    item_id: str | None = None
    after: str | None = None


class DeleteItem(ClientEvent, frozen=True, kw_only=True, tag="item.delete"):
    """Take a message out of the conversation."""

    item_id: str


class AppendAudio(ClientEvent, frozen=True, kw_only=True, tag="audio"):
    """Microphone audio; `pts_ms` is the media time of its first sample."""

    data: bytes
    pts_ms: float = 0


class CommitInput(ClientEvent, frozen=True, kw_only=True, tag="commit"):
    """Push-to-talk released: the buffered speech is an utterance."""


class ClearInput(ClientEvent, frozen=True, kw_only=True, tag="clear"):
    """Throw the buffered speech away."""


class Mute(ClientEvent, frozen=True, kw_only=True, tag="mute"):
    """The microphone is off (or on again)."""

    on: bool


class Cancel(ClientEvent, frozen=True, kw_only=True, tag="cancel"):
    """Stop the current reply, or the one named."""

    turn: int | None = None


class ReportPlayout(ClientEvent, frozen=True, kw_only=True, tag="playout"):
    """How much of a turn's audio has left the client's speaker."""

    turn: int
    played_ms: Any = None  # Any: a report that is no number is ignored and counted, not answered
    final: bool = False


class ToolResult(ClientEvent, frozen=True, kw_only=True, tag="tool.result"):
    """What a tool returned."""

    call_id: str
    output: str


class Ping(ClientEvent, frozen=True, kw_only=True, tag="ping"):
    """Application-level round trip; `t` comes back unchanged."""

    t: float | None = None


# --- server events -------------------------------------------------------------------------------------------------


class ServerEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what we send. `ref` answers the client message with that id."""

    ref: str | None = None


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


class SessionReady(ServerEvent, frozen=True, kw_only=True, tag="session.ready"):
    """The conversation is open. Has no `seq`."""

    session_id: str
    resume_token: str
    resumed: bool
    limits: Limits
    audio_out: AudioOut
    voices: tuple[VoiceInfo, ...]


class SessionUpdated(ServerEvent, frozen=True, kw_only=True, tag="session.updated"):
    """The settings now in force."""

    instructions: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    allow_barge_in: bool


class ItemAdded(ServerEvent, frozen=True, kw_only=True, tag="item.added"):
    """The message is in the conversation."""

    item_id: str


class ItemDeleted(ServerEvent, frozen=True, kw_only=True, tag="item.deleted"):
    """The message is out of the conversation."""

    item_id: str


class Ack(ServerEvent, frozen=True, kw_only=True, tag="ack"):
    """The message with this id arrived; `repeated`: it had been executed before."""

    repeated: bool | None = None


class TurnStarted(ServerEvent, frozen=True, kw_only=True, tag="turn.started"):
    """A reply is being thought of. `item_id`: the user's item that it answers."""

    turn: int
    item_id: str | None = None


class TextDelta(ServerEvent, frozen=True, kw_only=True, tag="text.delta"):
    """Caption text; `tokens` is the model's real count behind it."""

    turn: int
    text: str
    tokens: int


class SegmentDecided(ServerEvent, frozen=True, kw_only=True, tag="segment"):
    """A piece of the reply is decided; leaves before any of its audio exists. `at_ms`: debug stamp of its delta."""

    turn: int
    index: int
    text: str
    cut: Cut
    emotion: str | None = None
    at_ms: float | None = None


class Word(Struct, frozen=True, kw_only=True):
    """When a word of `spoken` sounds, from the segment's start."""

    start_ms: int
    end_ms: int
    start: int
    end: int


class SegmentAudio(ServerEvent, frozen=True, kw_only=True, tag="segment.audio"):
    """Which voice speaks the segment, and the text it was given; before its first audio frame."""

    turn: int
    index: int
    voice: str
    spoken: str
    words: tuple[Word, ...] | None = None


class AudioFrame(ServerEvent, frozen=True, kw_only=True, tag="audio"):
    """Audio of a segment; `pts_ms` since the turn's first sample. `at_ms`: debug stamp of its chunk."""

    turn: int
    index: int
    pts_ms: float
    data: bytes
    at_ms: float | None = None


class SegmentDone(ServerEvent, frozen=True, kw_only=True, tag="segment.done"):
    """All audio of the segment has been sent."""

    turn: int
    index: int
    audio_ms: int
    status: SegmentStatus


class Interrupted(ServerEvent, frozen=True, kw_only=True, tag="interrupted"):
    """Stop playing this turn now; only `heard` and `turn.done` of it follow."""

    turn: int
    reason: InterruptReason


class Heard(ServerEvent, frozen=True, kw_only=True, tag="heard"):
    """What the conversation now holds of a turn that did not complete."""

    turn: int
    heard_ms: int
    heard_text: str


class UsageInfo(Struct, frozen=True, kw_only=True):
    """Real token counts."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int


class ReplyDone(ServerEvent, frozen=True, kw_only=True, tag="reply.done"):
    """Everything of the reply has been sent, audio too."""

    turn: int
    usage: UsageInfo


class Timeline(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Milliseconds from the commit (or end of speech); absent when it did not happen."""

    ttft_ms: float | None = None
    first_segment_ms: float | None = None
    first_audio_ms: float | None = None
    first_playout_ms: float | None = None
    reply_done_ms: float | None = None


class TurnDone(ServerEvent, frozen=True, kw_only=True, tag="turn.done"):
    """The turn is over and, when completed, played out."""

    turn: int
    status: TurnStatus
    timeline: Timeline


class GoingAway(ServerEvent, frozen=True, kw_only=True, tag="going_away"):
    """The server stops; turns may finish until the deadline."""

    deadline_ms: int


class ErrorRaised(ServerEvent, frozen=True, kw_only=True, tag="error"):
    """What went wrong, and whether trying again helps."""

    code: str
    message: str
    retryable: bool
    retry_after_ms: int | None = None
    turn: int | None = None


class Pong(ServerEvent, frozen=True, kw_only=True, tag="pong"):
    """Answers `ping`."""

    t: float | None = None


CLIENT_EVENTS: dict[str, type[ClientEvent]] = {str(kind.__struct_config__.tag): kind for kind in ClientEvent.__subclasses__()}
SERVER_EVENTS: dict[str, type[ServerEvent]] = {str(kind.__struct_config__.tag): kind for kind in ServerEvent.__subclasses__()}
