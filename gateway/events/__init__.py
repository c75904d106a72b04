"""The vocabulary of a conversation: what clients ask (imperative) and what we tell them (past tense).

Both codecs speak these item-level events. Field names are the native protocol's own; a field that is None does not
go on the wire. Times and lengths are media milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from gateway.events.client import (
    AddItem,
    AppendAudio,
    Cancel,
    ClearInput,
    ClientEvent,
    CommitInput,
    DeleteItem,
    Mute,
    Ping,
    ReportPlayout,
    RequestReply,
    RetrieveItem,
    Say,
    SendText,
    StartSession,
    ToolResult,
    TruncateItem,
    UpdateSession,
)
from gateway.events.parts import (
    AudioIn,
    AudioOut,
    Cut,
    Eagerness,
    Endpointing,
    HistoryItem,
    InterruptReason,
    ItemInfo,
    ItemKind,
    Limits,
    Resume,
    Role,
    SegmentStatus,
    Timeline,
    Tool,
    TurnStatus,
    UsageInfo,
    VoiceInfo,
    Word,
)
from gateway.events.server import (
    Ack,
    AudioFrame,
    ErrorRaised,
    GoingAway,
    Heard,
    Interrupted,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
    PlayoutPaused,
    PlayoutResumed,
    Pong,
    ReplyDone,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    ServerEvent,
    SessionReady,
    SessionUpdated,
    SilenceTimedOut,
    SpeechEnded,
    SpeechStarted,
    TextDelta,
    ToolCalled,
    Transcribed,
    TurnDone,
    TurnStarted,
)

CLIENT_EVENTS: dict[str, type[ClientEvent]] = {str(kind.__struct_config__.tag): kind for kind in ClientEvent.__subclasses__()}
SERVER_EVENTS: dict[str, type[ServerEvent]] = {str(kind.__struct_config__.tag): kind for kind in ServerEvent.__subclasses__()}

__all__ = [
    "CLIENT_EVENTS", "SERVER_EVENTS", "Ack", "AddItem", "AppendAudio", "AudioFrame", "AudioIn", "AudioOut", "Cancel",
    "ClearInput", "ClientEvent", "CommitInput", "Cut", "DeleteItem", "Eagerness", "Endpointing", "ErrorRaised",
    "GoingAway", "Heard", "HistoryItem",
    "InterruptReason", "Interrupted", "ItemAdded", "ItemDeleted", "ItemInfo", "ItemKind", "ItemRetrieved", "ItemTruncated",
    "Limits", "Mute", "Ping", "PlayoutPaused", "PlayoutResumed", "Pong", "ReplyDone", "ReportPlayout", "RequestReply", "Resume",
    "RetrieveItem", "Role", "Say", "SegmentAudio", "SegmentDecided", "SegmentDone", "SegmentStatus", "SendText", "ServerEvent",
    "SessionReady", "SessionUpdated", "SilenceTimedOut", "SpeechEnded", "SpeechStarted", "StartSession", "TextDelta", "Timeline", "Tool",
    "ToolCalled", "ToolResult", "Transcribed", "TruncateItem", "TurnDone", "TurnStarted", "TurnStatus", "UpdateSession",
    "UsageInfo", "VoiceInfo", "Word",
]  # fmt: skip
