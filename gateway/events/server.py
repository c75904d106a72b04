"""What we tell clients: past tense, one class for one message type."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway.events.parts import (
    AudioIn,
    AudioOut,
    Cut,
    Endpointing,
    InterruptReason,
    ItemInfo,
    Limits,
    SegmentStatus,
    Timeline,
    Tool,
    TurnStatus,
    UsageInfo,
    VoiceInfo,
    Word,
)


class ServerEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what we send. `ref` answers the client message with that id."""

    ref: str | None = None


class SessionReady(ServerEvent, frozen=True, kw_only=True, tag="session.ready"):
    """The conversation is open. Has no `seq`. `audio_in`: what is taken from the client's microphone; absent where nobody listens.

    `gap`: another process took the resumed session over; what had left after `last_seq` does not come again, replies under way fail.
    `turns`, then: the newest turn that is known; a later one began in the last moment and never was, its client ends it by itself.
    `captured`: the conversation is kept, word for word.
    """

    session_id: str
    resume_token: str
    resumed: bool
    limits: Limits
    audio_out: AudioOut
    voices: tuple[VoiceInfo, ...]
    audio_in: AudioIn | None = None
    gap: bool | None = None
    turns: int | None = None
    captured: bool | None = None


class SessionUpdated(ServerEvent, frozen=True, kw_only=True, tag="session.updated"):
    """The settings now in force. `temperature`: absent where the gateway's own holds."""

    instructions: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    allow_barge_in: bool
    turn_detection: Literal["auto", "push_to_talk"] = "auto"
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    max_tokens: int | None = None
    temperature: float | None = None
    audio_out: AudioOut = AudioOut()
    speed: float = 1.0
    endpointing: Endpointing = Endpointing()


class ItemAdded(ServerEvent, frozen=True, kw_only=True, tag="item.added"):
    """The item is in the conversation, behind `after` (absent: in front of all)."""

    item_id: str
    after: str | None = None


class ItemRetrieved(ServerEvent, frozen=True, kw_only=True, tag="item"):
    """What the conversation holds of an item."""

    item: ItemInfo


class ItemTruncated(ServerEvent, frozen=True, kw_only=True, tag="item.truncated"):
    """The conversation holds the reply up to `audio_ms` (clamped to what was sent): `text`."""

    item_id: str
    audio_ms: int
    text: str


class ItemDeleted(ServerEvent, frozen=True, kw_only=True, tag="item.deleted"):
    """The message is out of the conversation."""

    item_id: str


class Ack(ServerEvent, frozen=True, kw_only=True, tag="ack"):
    """The message with this id arrived; `repeated`: it had been executed before."""

    repeated: bool | None = None


class SpeechStarted(ServerEvent, frozen=True, kw_only=True, tag="speech.started"):
    """Somebody speaks into the microphone since `at_ms` of its media time. `item_id`: of what they say, if it becomes an item."""

    utterance: int
    at_ms: int
    item_id: str | None = None


class SpeechEnded(ServerEvent, frozen=True, kw_only=True, tag="speech.ended"):
    """The utterance is over since `at_ms` of the microphone's media time."""

    utterance: int
    at_ms: int
    item_id: str | None = None


class Transcribed(ServerEvent, frozen=True, kw_only=True, tag="transcript"):
    """What was understood of an utterance so far, or in the end. `turn`: the reply that answers it, where there is one."""

    utterance: int
    text: str
    final: bool
    turn: int | None = None
    item_id: str | None = None


class SilenceTimedOut(ServerEvent, frozen=True, kw_only=True, tag="silence.timeout"):
    """Nobody spoke for `endpointing.idle_timeout_ms` behind a reply, from `from_ms` to `to_ms` of the microphone's media time.

    The silence is an item of the user's now, and the next turn answers it.
    """

    item_id: str
    from_ms: int
    to_ms: int


class TurnStarted(ServerEvent, frozen=True, kw_only=True, tag="turn.started"):
    """A reply is being thought of. `item_id`: the user's item that it answers; `reply_id`: the reply's own, behind `after`.

    `conversation` none: an out-of-band reply. `output`, `audio_out`: what it comes as, where the client may not know.
    """

    turn: int
    item_id: str | None = None
    reply_id: str | None = None
    after: str | None = None
    conversation: Literal["none"] | None = None
    output: Literal["audio", "text"] | None = None
    audio_out: AudioOut | None = None
    metadata: dict[str, str] | None = None


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


class SegmentAudio(ServerEvent, frozen=True, kw_only=True, tag="segment.audio"):
    """Which voice speaks the segment, and the text it was given; before its first audio frame. `generated`: no person speaks."""

    turn: int
    index: int
    voice: str
    spoken: str
    words: tuple[Word, ...] | None = None
    generated: bool | None = None


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


class PlayoutPaused(ServerEvent, frozen=True, kw_only=True, tag="playout.pause"):
    """Hold the player: the user may be interrupting. Nothing is thrown away yet."""

    turn: int


class PlayoutResumed(ServerEvent, frozen=True, kw_only=True, tag="playout.resume"):
    """Play on: it was no interruption."""

    turn: int


class Interrupted(ServerEvent, frozen=True, kw_only=True, tag="interrupted"):
    """Stop playing this turn now; only `heard` and `turn.done` of it follow."""

    turn: int
    reason: InterruptReason


class Heard(ServerEvent, frozen=True, kw_only=True, tag="heard"):
    """What the conversation now holds of a turn that did not complete."""

    turn: int
    heard_ms: int
    heard_text: str


class ToolCalled(ServerEvent, frozen=True, kw_only=True, tag="tool.call"):
    """The model wants this function called; the turn waits for `tool.result`. `arguments`: JSON text, as the model wrote it."""

    turn: int
    call_id: str
    name: str
    arguments: str
    item_id: str | None = None


class ReplyDone(ServerEvent, frozen=True, kw_only=True, tag="reply.done"):
    """Everything of the reply has been sent, audio too. `cut`: it stopped at the bound on its tokens, or before what may not be heard."""

    turn: int
    usage: UsageInfo
    cut: Literal["length", "refused"] | None = None


class TurnDone(ServerEvent, frozen=True, kw_only=True, tag="turn.done"):
    """The turn is over and, when completed, played out."""

    turn: int
    status: TurnStatus
    timeline: Timeline


class GoingAway(ServerEvent, frozen=True, kw_only=True, tag="going_away"):
    """The server stops; turns may finish until the deadline."""

    deadline_ms: int


class ErrorRaised(ServerEvent, frozen=True, kw_only=True, tag="error"):
    """What went wrong, and whether trying again helps. `item_id`: of what was said and could not be understood."""

    code: str
    message: str
    retryable: bool
    retry_after_ms: int | None = None
    turn: int | None = None
    item_id: str | None = None


class Pong(ServerEvent, frozen=True, kw_only=True, tag="pong"):
    """Answers `ping`."""

    t: float | None = None
