"""What a turn is told before it starts, and what it asks of the session that owns it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from engine.api import Ears, Kept, LanguageModel, Message, Synthesizer, ToolCall
from engine.decoding import DecodingRoom
from gateway.config import Settings
from gateway.events import AudioOut
from gateway.metrics import InputKind, Metrics
from gateway.quota import Quota
from gateway.shedding import Pressure
from gateway.speaker import Encoding, VoicePace
from gateway.speculation import Headroom
from gateway.speech.markup import MarkupRules
from gateway.turn.record import Caller, TurnWatcher

Progress = Literal["first_sent", "tools_returned", "reply_sent"]


class Parts(Struct, frozen=True, kw_only=True):
    """What every turn of this process works with; `now` is the loop's clock in seconds, `rules` what marks the model may write.

    `ears` None: this gateway takes no audio in. `encoding` None: it gives out pcm16 only. `decoding` None: opus is decoded in this process.
    `watchers`: who is told what turns come to. `moderator`: who judges words before they are heard.
    """

    model: LanguageModel
    voices: Synthesizer
    metrics: Metrics
    settings: Settings
    rules: MarkupRules
    now: Callable[[], float]
    ears: Ears | None = None
    headroom: Headroom = field(default_factory=Headroom)
    encoding: Encoding | None = None
    pace: VoicePace = field(default_factory=VoicePace)
    quota: Quota = field(default_factory=Quota)
    decoding: DecodingRoom | None = None
    pressure: Pressure = field(default_factory=Pressure)
    watchers: tuple[TurnWatcher, ...] = ()
    moderator: Any = None  # Any: a Moderator, which is built upon this file


class Plan(Struct, frozen=True, kw_only=True):
    """What this turn is to do. `say`: speak this text instead of asking the model with `messages`.

    `has_floor` False: an out-of-band reply beside the conversation. `lead_ms`: audio ahead of the listener, at most. `heard_wait_s`: how
    long a stopped turn waits for the client's last word. `started_s`: the commit, or the end of speech, on the loop's clock; None is now.
    `draft`: which draft of its session this is, 0 for none. `notice`: said in front of the reply.
    """

    number: int
    session_id: str
    reply_item_id: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    audio_out: AudioOut
    max_tokens: int
    temperature: float
    lead_ms: int
    heard_wait_s: float
    speed: float = 1.0
    messages: tuple[Message, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()  # Any: JSON schema
    tool_flow: Literal["same_turn", "next_turn"] = "same_turn"
    kept: Kept | None = None
    say: str | None = None
    has_floor: bool = True
    input: InputKind = "text"
    started_s: float | None = None
    draft: int = 0
    cache_salt: str | None = None
    caller: Caller = Caller()
    notice: str = ""


class SentCall(Struct, frozen=True, kw_only=True):
    """A tool call under the id that this conversation knows it by, and its item."""

    call: ToolCall
    item_id: str


class Owner(Protocol):
    """The session, as a turn sees it. Everything returns at once."""

    def on_progress(self, turn: Any, progress: Progress) -> None:  # Any: the Turn itself, which is built upon this file
        """Something left or came back; the floor may change its state."""

    def on_calls(self, turn: Any, calls: tuple[ToolCall, ...]) -> tuple[SentCall, ...]:  # Any: as above
        """The model wants these called: note them and give them ids that are unique here."""

    def on_reply_continued(self, turn: Any) -> str:  # Any: as above
        """All results are in and the reply goes on: the id of its next item."""
