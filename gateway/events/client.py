"""What clients ask for: imperative, one class for one message type."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from gateway.events.parts import AudioIn, AudioOut, Endpointing, HistoryItem, ItemInfo, ItemKind, Resume, Role, Tool


class ClientEvent(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Base of what a client may send. `id`: the answer carries it as `ref`; a repeated one is not executed again."""

    id: str | None = None


class StartSession(ClientEvent, frozen=True, kw_only=True, tag="session.start"):
    """Opens the conversation; the first message of a connection.

    `tool_flow`: whether a tool's result continues the turn that called it, or waits for the next `reply.create`. `playout` clock: this
    client never reports what it played; it says afterwards where it stopped (`item.truncate`). `speed`: of the voice, 1 as it is.
    """

    persona: str | None = None
    instructions: str | None = None
    language: str | None = None
    voice: str | None = None
    history: tuple[HistoryItem, ...] = ()
    output: Literal["audio", "text"] = "audio"
    audio_in: AudioIn | None = None
    audio_out: AudioOut = AudioOut()
    speed: float | None = None
    turn_detection: Literal["auto", "push_to_talk"] = "auto"
    allow_barge_in: bool = True
    emotion: bool | None = None
    tools: tuple[Tool, ...] = ()
    tool_flow: Literal["same_turn", "next_turn"] = "same_turn"
    playout: Literal["reported", "clock"] = "reported"
    user: str | None = None
    capture: bool | None = None
    resume: Resume | None = None


class UpdateSession(ClientEvent, frozen=True, kw_only=True, tag="session.update"):
    """Changes the given settings from the next turn on; `turn_detection` at once: what was said and is no utterance yet is thrown away.

    `endpointing`: whole and at once, what it leaves out is the gateway's own again.
    `audio_in`: the microphone's format from now on; `audio_out`: ours, from the next turn on.
    `auto_reply` false: an utterance becomes an item, `reply.create` asks for its answer.
    `tool_choice`: auto, none, required, or function:NAME. `max_tokens` inf: up to the server's own bound.
    """

    instructions: str | None = None
    language: str | None = None
    voice: str | None = None
    output: Literal["audio", "text"] | None = None
    allow_barge_in: bool | None = None
    turn_detection: Literal["auto", "push_to_talk"] | None = None
    endpointing: Endpointing | None = None
    audio_in: AudioIn | None = None
    audio_out: AudioOut | None = None
    speed: float | None = None
    auto_reply: bool | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: str | None = None
    max_tokens: int | Literal["inf"] | None = None
    temperature: float | None = None


class SendText(ClientEvent, frozen=True, kw_only=True, tag="text"):
    """A typed utterance: adds the item and asks for a reply."""

    text: str


class Say(ClientEvent, frozen=True, kw_only=True, tag="say"):
    """Speak this text as the assistant, without asking the model."""

    text: str


class RequestReply(ClientEvent, frozen=True, kw_only=True, tag="reply.create"):
    """Let the assistant speak; everything given holds for this reply only.

    `conversation` none: out of band, beside the floor turn; the reply enters no history. `input` replaces the conversation as context.
    `metadata` comes back in `turn.started`.
    """

    instructions: str | None = None
    conversation: Literal["default", "none"] = "default"
    input: tuple[ItemInfo, ...] | None = None
    tools: tuple[Tool, ...] | None = None
    tool_choice: str | None = None
    max_tokens: int | Literal["inf"] | None = None
    temperature: float | None = None
    output: Literal["audio", "text"] | None = None
    audio_out: AudioOut | None = None
    voice: str | None = None
    speed: float | None = None
    metadata: dict[str, str] | None = None


class AddItem(ClientEvent, frozen=True, kw_only=True, tag="item.add"):
    """Put an item into the conversation, behind `after` (`root`: in front) or at its end.

    `text` is a message's words, a call's arguments (JSON) or a result's output; calls and results carry `call_id`, calls `name`.
    """

    role: Role = "user"
    text: str
    item_id: str | None = None
    after: str | None = None
    kind: ItemKind = "message"
    call_id: str | None = None
    name: str | None = None


class DeleteItem(ClientEvent, frozen=True, kw_only=True, tag="item.delete"):
    """Take a message out of the conversation."""

    item_id: str


class RetrieveItem(ClientEvent, frozen=True, kw_only=True, tag="item.retrieve"):
    """Ask what the conversation holds of an item."""

    item_id: str


class TruncateItem(ClientEvent, frozen=True, kw_only=True, tag="item.truncate"):
    """The listener heard only `audio_ms` of this spoken reply: the conversation forgets the rest."""

    item_id: str
    audio_ms: float


class AppendAudio(ClientEvent, frozen=True, kw_only=True, tag="audio"):
    """Microphone audio; `pts_ms` is the media time of its first sample. Without one it follows right behind the last."""

    data: bytes
    pts_ms: float | None = None


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
