"""The Realtime codec of one connection.

`decode` and `encode` run at different moments: a message is acted on long before its answer is written. So nothing is decided here about
the conversation; each message gets a `ref`, and what its answer needs waits under it.

Control frames overtake audio on their way (`outbox`), and this protocol knows one response of the conversation at a time: what belongs to
the next one is held until the one before is closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec
from msgspec import Struct, structs

from gateway.codecs.realtime.echo import session_object
from gateway.codecs.realtime.faults import Fault, Json, error_event, failure
from gateway.codecs.realtime.fields import Fields
from gateway.codecs.realtime.formats import RATE_HZ
from gateway.codecs.realtime.hearing import Hearing
from gateway.codecs.realtime.items import write_item
from gateway.codecs.realtime.overrides import Wishes
from gateway.codecs.realtime.requests import Known, Request, parse, read
from gateway.codecs.realtime.response import Response, Status
from gateway.errors import CLOSE_BUG, CLOSE_DRAINING, CLOSE_IDLE, CLOSE_POLICY, CLOSE_SLOW_READER, StrettoError
from gateway.events import (
    Ack,
    AudioFrame,
    AudioIn,
    ClientEvent,
    CommitInput,
    ErrorRaised,
    Interrupted,
    ItemAdded,
    ItemDeleted,
    ItemRetrieved,
    ItemTruncated,
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
    StartSession,
    TextDelta,
    ToolCalled,
    Transcribed,
    TurnDone,
    TurnStarted,
    UpdateSession,
    UsageInfo,
    VoiceInfo,
)

KNOWN_ITEMS = 4096  # as many as a conversation holds
OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer", "verse"}
)  # names that clients send by default; they get the session's own voice
_CLOSE_CODES = {CLOSE_IDLE: 1001, CLOSE_DRAINING: 1001, CLOSE_SLOW_READER: CLOSE_POLICY}
_encoder = msgspec.json.Encoder()


class Asked(Struct, kw_only=True):
    """What the answer to a client's message needs."""

    kind: str
    event_id: str | None
    item: Json | None = None
    wishes: Wishes = {}
    fault: Fault | None = None
    heard: Json | None = None


class RealtimeCodec:
    """`unique`: makes ids that no other connection has. `model`: the name the client knows. `can_listen`: audio is taken in.

    `preset`: a session as clients write it, in force from the beginning.
    """

    is_strict = False  # an error here ends some clients: slow down instead of dropping, forgive instead of closing
    can_resume = False
    opening = StartSession(output="audio", playout="clock", tool_flow="next_turn")

    def __init__(
        self, unique: str, model: str, message_bytes: int, idle_s: float, *, can_listen: bool = False, preset: Json | None = None
    ) -> None:
        self.message_bytes = message_bytes
        self.idle_s = idle_s
        self._unique = unique
        self._model = model
        self._preset = preset
        self._session_id = ""
        self._settings: SessionUpdated
        self._own_voice = ""
        self._voices: frozenset[str] = frozenset()
        self._has_spoken = False
        self._has_refused_audio = False
        self._hearing = Hearing(is_available=can_listen)
        if can_listen:
            self.opening = structs.replace(self.opening, audio_in=AudioIn(rate_hz=RATE_HZ))
        self._n_events = 0
        self._n_messages = 0
        self._asked: dict[str, Asked] = {}
        self._responses: dict[int, Response] = {}
        self._failures: dict[int, ErrorRaised] = {}
        self._active: Response | None = None
        self._held: list[ServerEvent] = []
        self._held_turns: set[int] = set()
        self._items: OrderedDict[str, Literal["audio", "text"] | None] = OrderedDict()

    def close_code(self, error: StrettoError) -> int:
        """Standard codes alone: some clients connect anew after 1001 and 1013, and know none of ours."""
        return _CLOSE_CODES.get(error.close or CLOSE_BUG, error.close or CLOSE_BUG)

    # --- from the client -------------------------------------------------------------------------------------------

    def decode(self, frame: bytes | str) -> list[ClientEvent]:
        """The event in a text frame; nothing for further audio where none is taken. Raises `Fault`, whose answer is told by its `ref`."""
        self._n_messages += 1
        ref = f"m{self._n_messages}"
        asked = Asked(kind="", event_id=None)
        try:
            body = parse(frame)
            asked.event_id = body["event_id"] if isinstance(body.get("event_id"), str) else None
            asked.kind = body["type"] if isinstance(body.get("type"), str) else ""
            if self._hearing.is_available and asked.kind == "input_audio_buffer.append":
                return [self._hearing.append(Fields(body))]
            request = self._read(body, ref, asked)
        except Fault as fault:
            if fault.wire_code == "audio_input_not_supported":
                if self._has_refused_audio:
                    return []
                self._has_refused_audio = True
            asked.fault, fault.ref = fault, ref
            self._asked[ref] = asked
            raise
        asked.item, asked.wishes = request.item, request.wishes
        self._asked[ref] = asked
        return [] if request.event is None else [request.event]

    def _read(self, body: Json, ref: str, asked: Asked) -> Request:
        if self._hearing.is_available and asked.kind == "input_audio_buffer.commit":
            return Request(event=CommitInput(id=ref))
        request = read(body, self._known(), ref)
        if isinstance(request.event, UpdateSession):
            update, asked.heard = self._with_hearing(request.event, body)
            return Request(event=update)
        return request

    def _with_hearing(self, update: UpdateSession, body: Json) -> tuple[UpdateSession, Json]:
        """An update with what it asks of the microphone, and how that will be shown."""
        wishes, changes = self._hearing.read(Fields(body).needed_object("session"))
        return structs.replace(update, **wishes), changes

    def _known(self) -> Known:
        return Known(voice_id=self._voice_id, turn_of=self._turn_of, voice=self._settings.voice, has_spoken=self._has_spoken)

    def _voice_id(self, name: str) -> str:
        return self._own_voice if name in OPENAI_VOICES and name not in self._voices else name

    def _turn_of(self, response_id: str) -> int | None:
        prefix, _, number = response_id.rpartition("_")
        return int(number) if prefix == f"resp_{self._unique}" and number.isascii() and number.isdigit() and len(number) < 12 else None

    # --- to the client ---------------------------------------------------------------------------------------------

    def configure(self, settings: SessionUpdated, voices: tuple[VoiceInfo, ...]) -> UpdateSession | None:
        """The preset of a client secret. Raises `Fault`."""
        self._meet(settings, voices)
        if self._preset is None:
            return None
        body = {"type": "session.update", "session": self._preset}
        update = read(body, self._known(), "").event
        assert isinstance(update, UpdateSession), "a session.update is read as one"
        update, changes = self._with_hearing(structs.replace(update, id=None), body)
        self._hearing.shown = self._hearing.shown | changes
        return update

    def welcome(self, ready: SessionReady, settings: SessionUpdated) -> list[bytes | str]:
        """`session.created`."""
        self._session_id = ready.session_id
        self._meet(settings, ready.voices)
        return self._frames([{"type": "session.created", "session": self.describe(ready.session_id, settings)}])

    def _meet(self, settings: SessionUpdated, voices: tuple[VoiceInfo, ...]) -> None:
        self._settings = settings
        self._own_voice, self._voices = settings.voice, frozenset(voice.id for voice in voices)

    def encode(self, event: ServerEvent, seq: int | None) -> list[bytes | str]:
        """The frames of an event; `seq` has no place here."""
        return self._frames(self._events(event))

    def _frames(self, events: Iterable[Json]) -> list[bytes | str]:
        return [self._frame(event) for event in events]

    def _frame(self, event: Json) -> str:
        self._n_events += 1
        return _encoder.encode({"event_id": f"event_{self._unique}_{self._n_events}", **event}).decode("utf-8")

    def _events(self, event: ServerEvent) -> Iterator[Json]:
        turn: int | None = getattr(event, "turn", None)
        if turn is not None and self._must_wait(event, turn):
            self._held.append(event)
        elif isinstance(event, TurnStarted):
            yield from self._on_started(event)
        elif turn is not None and (response := self._responses.get(turn)) is not None:
            for told in self._on_turn(event, response):
                if told["type"] == "conversation.item.added":
                    self._show(told["item"]["id"], response.modality)
                yield told
        elif turn is None or isinstance(event, Transcribed):
            yield from self._on_answer(event)

    def _must_wait(self, event: ServerEvent, turn: int) -> bool:
        if isinstance(event, TurnStarted) and event.conversation is None and self._active is not None:
            self._held_turns.add(turn)
        return turn in self._held_turns

    def _on_answer(self, event: ServerEvent) -> Iterator[Json]:
        asked = self._asked.pop(event.ref, None) if event.ref is not None else None
        match event:
            case SpeechStarted() | SpeechEnded() | Transcribed() | SilenceTimedOut() | ErrorRaised(code="asr_failed"):
                yield from self._on_speech(event)
            case ErrorRaised():
                kind, event_id, fault = ("", None, None) if asked is None else (asked.kind, asked.event_id, asked.fault)
                yield error_event(event, kind, event_id, fault, None if self._active is None else self._active.id)
            case SessionUpdated():
                self._settings = event
                if asked is not None and asked.heard is not None:
                    self._hearing.shown = self._hearing.shown | asked.heard
                yield {"type": "session.updated", "session": self.describe(self._session_id, event)}
            case ItemAdded() if asked is not None and asked.item is not None:
                item = asked.item | {"id": event.item_id}
                previous = self._shown_before(event.after)
                self._show(event.item_id, None)
                for kind in ("conversation.item.added", "conversation.item.done"):
                    yield {"type": kind, "previous_item_id": previous, "item": item}
            case ItemRetrieved():
                modality = self._items.get(event.item.item_id or "")
                yield {"type": "conversation.item.retrieved", "item": write_item(event.item, modality)}
            case ItemDeleted():
                self._items.pop(event.item_id, None)
                yield {"type": "conversation.item.deleted", "item_id": event.item_id}
            case ItemTruncated():
                cut = {"item_id": event.item_id, "content_index": 0, "audio_end_ms": event.audio_ms}
                yield {"type": "conversation.item.truncated", **cut}
            case Ack() if asked is not None and asked.kind == "input_audio_buffer.clear":
                yield {"type": "input_audio_buffer.cleared"}
            case _:
                pass  # what this protocol does not tell: acks, and the announcement of a server that stops

    def _on_speech(self, event: ServerEvent) -> Iterator[Json]:
        for told in self._hearing.tell(event, next(reversed(self._items), None)):
            if told["type"] == "conversation.item.added":
                self._show(told["item"]["id"], "audio")
            yield told

    def _on_started(self, event: TurnStarted) -> Iterator[Json]:
        asked = self._asked.pop(event.ref, None) if event.ref is not None else None
        wishes: Wishes = {} if asked is None else asked.wishes
        max_tokens = wishes.get("max_tokens", self._settings.max_tokens)
        response = Response(
            f"resp_{self._unique}_{event.turn}",
            event,
            f"conv_{self._unique}" if event.conversation is None else None,
            self._shown_before(event.after),
            voice=wishes.get("voice", self._settings.voice),
            max_tokens="inf" if max_tokens is None else max_tokens,
        )
        self._responses[event.turn] = response
        if response.in_conversation:
            self._active = response
        yield from response.begin()

    def _on_turn(self, event: ServerEvent, response: Response) -> Iterator[Json]:
        match event:
            case TextDelta():
                yield from response.write(event.text)
            case SegmentDecided():
                response.decide(event.index, event.text)
            case SegmentAudio() | SegmentDone():
                yield from response.speak(event.index)
            case AudioFrame():
                self._has_spoken = True
                yield from response.sound(event.data)
            case ToolCalled():
                response.call(event)
            case ErrorRaised():
                self._failures[response.turn] = event
            case ReplyDone():
                yield from self._on_reply_done(event, response)
            case Interrupted():
                reason = "turn_detected" if event.reason == "speech" else "client_cancelled"
                yield from self._end(response, "cancelled", {"type": "cancelled", "reason": reason})
            case TurnDone(status="superseded"):
                yield from self._end(response, "cancelled", {"type": "cancelled", "reason": "turn_detected"})
            case TurnDone(status="refused"):
                yield from self._end(response, "incomplete", {"type": "incomplete", "reason": "content_filter"})
            case TurnDone():
                yield from self._end(response, "failed", failure(self._failures.get(response.turn)))
            case _:
                pass  # what was heard is the client's own knowledge here

    def _on_reply_done(self, event: ReplyDone, response: Response) -> Iterator[Json]:
        """Sent whole; a reply of which no sentence could be spoken has failed, even though its text is known."""
        raised = self._failures.get(response.turn)
        if raised is not None and response.modality == "audio" and not response.n_sounding:
            yield from self._end(response, "failed", failure(raised), event.usage)
        elif event.cut == "refused":
            yield from self._end(response, "incomplete", {"type": "incomplete", "reason": "content_filter"}, event.usage)
        elif event.cut == "length":
            yield from self._end(response, "incomplete", {"type": "incomplete", "reason": "max_output_tokens"}, event.usage)
        else:
            yield from self._end(response, "completed", None, event.usage)

    def _end(self, response: Response, status: Status, details: Json | None, usage: UsageInfo | None = None) -> Iterator[Json]:
        yield from response.end(status, details, usage)
        self._failures.pop(response.turn, None)
        del self._responses[response.turn]
        if self._active is response:
            self._active = None
            yield from self._release()

    def _release(self) -> Iterator[Json]:
        """What waited for the response that has just closed; the next response may make the rest wait again."""
        held, self._held, self._held_turns = self._held, [], set()
        for event in held:
            yield from self._events(event)

    def describe(self, session_id: str, settings: SessionUpdated) -> Json:
        """The session object."""
        return session_object(settings, session_id, self._model, self._hearing.describe(settings.endpointing))

    def _show(self, item_id: str, modality: Literal["audio", "text"] | None) -> None:
        self._items[item_id] = modality
        if len(self._items) > KNOWN_ITEMS:
            self._items.popitem(last=False)

    def _shown_before(self, item_id: str | None) -> str | None:
        """The item in front, where this client was told of it: a reply that was stopped before its first word was not."""
        if item_id is None or item_id in self._items:
            return item_id
        return next(reversed(self._items), None)
