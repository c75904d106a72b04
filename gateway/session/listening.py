"""The spoken side of a conversation: utterances become turns, drafts and interruptions.

The listener tells what is heard, `turn_state` who may have the floor, `endpointing.judge` whether words interrupt, `speculation` what
becomes of a draft; here the session is made to do it. Changed on the loop, without waiting in between.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from engine.api import EngineSetupError
from gateway.endpointing import is_echo, judge
from gateway.errors import NotAvailable, SpeechLost, StrettoError, TooManyReplies, UnsupportedCodec
from gateway.events import (
    AppendAudio,
    AudioIn,
    ClearInput,
    CommitInput,
    Mute,
    PlayoutPaused,
    PlayoutResumed,
    RequestReply,
    ServerEvent,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    Transcribed,
    TurnStarted,
    UpdateSession,
)
from gateway.listener import Listener, Utterance
from gateway.session.decoding import Decoding
from gateway.session.drafts import Drafts
from gateway.session.frames import error_frame
from gateway.session.idling import Idling
from gateway.session.items import new_item_id
from gateway.session.refusals import take_turn, turn_refusal
from gateway.session.upkeep import Upkeep
from gateway.turn import Parts, Spoken, Turn
from gateway.turn_state import Event, State

if TYPE_CHECKING:
    from gateway.session.session import Session

MOST_PUT_OFF = 8  # replies that wait for a text: one of the conversation, and those beside it; each may bring a megabyte
REPLYING = frozenset({State.THINKING, State.SPEAKING, State.HELD, State.AWAITING_TOOL, State.PLAYING_OUT})


class Asked(Struct, frozen=True):
    """The spoken utterance that a turn answers."""

    turn: Turn
    item_id: str
    text: str


class Listening:
    """What a session hears; nothing where the gateway has no ears.

    `run` is its task; the listener calls the `on_` methods, the session `hold`, `release` and what else it must know.
    Raises `UnsupportedCodec` where a codec's library is missing.
    """

    def __init__(self, session: Session, start: StartSession, parts: Parts) -> None:
        self._session, self._parts = session, parts
        self._listening = parts.metrics.listening
        self._is_pushed = start.turn_detection == "push_to_talk"
        self.audio_in = None if parts.ears is None else start.audio_in or AudioIn()
        self.decoding = Decoding(parts.decoding, parts.metrics.listening)
        self._listener = self._make_listener(start, parts)
        if self._listener is not None and start.language is not None:
            self._listener.language = _primary(start.language)
        self.drafts = Drafts(session, parts)
        if self._listener is not None:
            self._listener.endpoint_by(session.profile.endpointing)  # of a session that goes on here, as its client had asked
        self.idling = Idling(session, self._listener, parts)
        self._started_s = self._decided_s = 0.0
        self._is_confirmed = False  # the utterance that is being heard interrupts (or no reply is there to be interrupted)
        self._held_s: float | None = None
        self._hold_timer: asyncio.TimerHandle | None = None
        self._asked: Asked | None = None
        self._echoed: Turn | None = None  # the newest reply that came back through the microphone
        self._carried = ""  # what the speaker had said before they went on
        self._item_ids: dict[int, str] = {}
        self._spans_s: dict[int, tuple[float, float]] = {}  # of utterances that are not text yet: from when to when
        self._withheld: list[ServerEvent] = []  # of speech over the reply of a client that would stop its player at once
        self._put_off: list[RequestReply] = []
        self.upkeep = Upkeep(session, parts, is_spoken=self._listener is not None)

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                if self._listener is not None:
                    tasks.create_task(self._listener.run(), name=f"{self._session.session_id} listen")
                await self.upkeep.run()
        finally:
            self._stop_timer()
            self.idling.pause()
            self.drafts.drop()
            self.decoding.close()

    def receive(self, event: AppendAudio | CommitInput | ClearInput | Mute) -> None:
        """Act on a client's event. Raises `InputEmpty`, and `NotAvailable` where nobody listens."""
        listener = self._listener
        if listener is None:
            if not isinstance(event, ClearInput):  # what is to be thrown away is gone
                raise NotAvailable("This gateway takes no audio in; expected `text`.")
            return
        match event:
            case AppendAudio():
                listener.take(event)
            case CommitInput():
                listener.commit()
            case ClearInput():
                listener.clear()
            case Mute():
                listener.mute(on=event.on)

    def update(self, wish: UpdateSession) -> None:
        """The client changes how it is listened to. Raises `UnsupportedCodec`; nothing is changed then."""
        listener = self._listener
        if listener is not None and wish.audio_in is not None:
            try:
                listener.hear_as(self.decoding.heard_as(wish.audio_in))
            except (EngineSetupError, ValueError) as error:
                raise UnsupportedCodec(f"audio_in {wish.audio_in.codec!r} at {wish.audio_in.rate_hz} Hz is not available here.") from error
            self.audio_in = wish.audio_in
            self.decoding.begin(wish.audio_in)
        self._is_pushed = self._session.profile.turn_detection == "push_to_talk"
        if listener is None:
            return
        if wish.language is not None:
            listener.language = _primary(wish.language)
            self._session.start = structs.replace(self._session.start, language=wish.language)
        listener.listen_by(self._session.profile.turn_detection)
        if wish.endpointing is not None:
            listener.endpoint_by(self._session.profile.endpointing)
            self.idling.wait()

    def puts_off(self, request: RequestReply) -> bool:
        """Whether a reply must wait, because what it is to answer is being read; it is asked for again then. Refuses what would pile up."""
        is_early = self._listener is not None and self._listener.is_reading and not self._session.profile.auto_reply
        if is_early and len(self._put_off) < MOST_PUT_OFF:
            self._put_off.append(request)
        elif is_early:
            fault = f"{MOST_PUT_OFF} replies wait for what is being read; expected to wait for one of them."
            self._session.outbox.put(error_frame(TooManyReplies(fault), request.id))
        return is_early

    @property
    def is_deaf(self) -> bool:
        """Whether a reply may not be interrupted now."""
        return not self._session.profile.allow_barge_in and self._session.state in REPLYING

    @property
    def awaits_words(self) -> bool:
        """Whether what is said now may stop a reply, and has not yet."""
        return self._session.state in REPLYING and not self._is_confirmed and not self._only_notes

    def on_speech_started(self, number: int, at_ms: int, started_s: float) -> None:
        """Somebody speaks: a reply that sounds is paused, a cold prompt is warmed."""
        session = self._session
        self._started_s, self._is_confirmed, self._withheld = started_s, False, []
        self.idling.pause()
        self._spans_s[number] = started_s, started_s
        item_id = self._item_ids[number] = new_item_id()
        self._tell(SpeechStarted(utterance=number, at_ms=at_ms, item_id=item_id))
        if session.state is State.LISTENING:
            self.upkeep.warm_up()
        is_told_apart = session.floor is not None and session.floor is self._echoed  # it would pause us again and again
        if not is_told_apart and not self._only_notes:
            self.drafts.give_up("resumed", Event.SPEECH_STARTED)
            session.apply(Event.SPEECH_STARTED)
        self.drafts.new_utterance()

    def on_text(self, number: int, text: str) -> None:
        """Words so far: they may stop a reply."""
        self._judge(text, is_final=False)
        self._tell(Transcribed(utterance=number, text=text, final=False, item_id=self._item_ids.get(number)))

    def on_likely_end(self, number: int, text: str, *, ended_s: float) -> None:
        """The speaker may have finished: a draft is begun, kept, or replaced by one for a better text."""
        if self._session.state in REPLYING or not self._session.profile.auto_reply:
            return
        self.drafts.on_likely_end(self._merged(text), ended_s)

    def on_speech_resumed(self, number: int) -> None:
        """It was a pause: the draft answered half a sentence."""
        self.drafts.give_up("resumed", Event.SPEECH_STARTED)

    def on_speech_ended(self, number: int, at_ms: int) -> None:
        """The utterance is over."""
        self._decided_s = self._parts.now()
        if (span := self._spans_s.get(number)) is not None:
            self._spans_s[number] = span[0], self._decided_s
        self._tell(SpeechEnded(utterance=number, at_ms=at_ms, item_id=self._item_ids.get(number)))

    def on_utterance(self, utterance: Utterance) -> None:
        """The final text: it interrupts, or lets the reply go on; and it is answered."""
        self._judge(utterance.text, is_final=True)
        self._charge(utterance.number, utterance.ended_s)
        session, item_id = self._session, self._item_ids.pop(utterance.number, None)
        is_heard = session.state not in REPLYING or self._is_confirmed or self._only_notes
        text = self._merged(utterance.text) if is_heard and not self._is_late_echo(utterance.text) else ""
        is_answered = bool(text) and session.profile.auto_reply and turn_refusal(session, self._parts) is None
        turn = session.n_turns + 1 if is_answered else None
        self._tell(Transcribed(utterance=utterance.number, text=utterance.text, final=True, turn=turn, item_id=item_id))
        if not utterance.is_whole:
            session.outbox.put(error_frame(SpeechLost("A part of what was said could not be understood in time; the rest is answered.")))
        if not text:
            self.drafts.give_up("changed")
        elif session.profile.auto_reply:
            self._answer(text, item_id, utterance.ended_s)
        else:
            session.conversation.add_user(text, item_id)
        self.idling.wait()
        self._ask_again()

    def on_nothing(self, number: int, why: Literal["noise", "cleared", "failed", "crowded"], error: StrettoError | None = None) -> None:
        """No text comes of the utterance: a paused reply goes on, and what was said before it is answered."""
        item_id = self._item_ids.pop(number, None)
        self._charge(number, 0.0 if why == "noise" else None)
        if error is not None:
            self._tell(structs.replace(error_frame(error), item_id=item_id))
        self._dismiss()
        self.drafts.give_up("failed" if error is not None else "cancelled")
        if self._carried and self._session.state is State.LISTENING and why != "cleared":
            self._answer(self._merged(""), None, self._parts.now())
        self.idling.wait()
        self._ask_again()

    def hold(self, turn: Turn) -> None:
        """The floor's table says: pause. A client with a clock of its own has no pause; its reply goes on until words confirm."""
        now = self._parts.now()
        self._held_s = now
        self._stop_timer()
        self._hold_timer = asyncio.get_running_loop().call_later(self._parts.settings.barge_in.hold_s, self._on_held_long)
        if self._session.profile.is_clocked or turn.plan.output == "text":
            return
        turn.hold()
        self._session.outbox.put(PlayoutPaused(turn=turn.number))
        self._listening.barge_in_pause.observe(max(0.0, now - self._started_s))

    def release(self, turn: Turn) -> None:
        """The floor's table says: play on."""
        self._stop_timer()
        if self._session.profile.is_clocked or turn.plan.output == "text":
            return
        turn.release()
        self._session.outbox.put(PlayoutResumed(turn=turn.number))

    def turn_began(self) -> None:
        """A request is on its way."""
        self.upkeep.turn_began()
        self.idling.turn_began()

    def _make_listener(self, start: StartSession, parts: Parts) -> Listener | None:
        if parts.ears is None or self.audio_in is None:
            return None
        session_id, mode = self._session.session_id, start.turn_detection
        try:
            heard = self.decoding.heard_as(self.audio_in)
            listener = Listener(session_id, heard, mode, parts.settings, parts.ears, self._listening, parts.now, self)
        except EngineSetupError as error:
            raise UnsupportedCodec(f"audio_in.codec {self.audio_in.codec!r} is not available here; its library is missing.") from error
        self.decoding.begin(self.audio_in)
        return listener

    def _judge(self, text: str, *, is_final: bool) -> None:
        """Whether the words stop the reply that is on its way."""
        session = self._session
        if not self.awaits_words:
            return
        settings = self._parts.settings.barge_in
        if self._is_pushed:  # a pressed button is no backchannel
            verdict = judge(text, is_final=is_final, backchannels=())
        else:
            said = session.floor.sounding_text() if settings.echo_guard and session.floor is not None else ""
            verdict = judge(text, is_final=is_final, backchannels=settings.backchannels, said=said)
            if is_final and is_echo(text, said):
                self._echoed = session.floor
        if verdict == "confirm":
            self._confirm()
        elif verdict == "dismiss":
            self._dismiss()

    def _is_late_echo(self, text: str) -> bool:
        """Whether these are the last words of a reply that had come back before, heard after its end."""
        return self._echoed is not None and self._echoed.number == self._session.n_turns and is_echo(text, self._echoed.sounding_text())

    def _confirm(self) -> None:
        """They are words: the reply stops. It is `superseded` where the speaker only goes on with what they had begun."""
        self._is_confirmed = True
        session, asked = self._session, self._asked
        for event in self._withheld:
            session.outbox.put(event)
        is_merged = asked is not None and asked.turn is session.floor and not session.profile.is_clocked and self._goes_on(asked.turn)
        if asked is not None and is_merged:
            asked.turn.is_superseded = True
            self._carried = asked.text
            self._asked = None
        self._stop_timer()
        self._listening.barge_ins.labels("merged" if is_merged else "confirmed").inc()
        session.apply(Event.SPEECH_CONFIRMED, "speech")
        if asked is not None and is_merged:
            session.conversation.forget(asked.turn, asked.item_id)

    def _goes_on(self, turn: Turn) -> bool:
        left_s = turn.left_s
        return left_s is None or self._started_s - left_s <= self._parts.settings.hearing.merge_ms / 1000

    def _charge(self, number: int, ended_s: float | None = None) -> None:
        """What was listened to is on the key's account, whether it is answered, refused, lost, or taken back by its client."""
        began_s, over_s = self._spans_s.pop(number, (math.inf, 0.0))
        said_s = max(0.0, (over_s if ended_s is None else ended_s) - began_s)
        self._parts.quota.of(self._session.profile.rights.account).spend(0, said_s, self._parts.now())

    def _dismiss(self) -> None:
        if self._session.state is State.HELD:
            self._listening.barge_ins.labels("dismissed").inc()
        if self._session.state in REPLYING:
            self._session.apply(Event.SPEECH_DISMISSED)

    def _on_held_long(self) -> None:
        self._hold_timer = None
        self._dismiss()

    def _merged(self, text: str) -> str:
        """The text with what the speaker had said before they went on."""
        if not self._carried or not text:
            return text or self._carried
        glue = "" if ord(text[0]) > 0x2E80 else " "
        return self._carried + glue + text

    def _answer(self, text: str, item_id: str | None, ended_s: float) -> None:
        """A spoken utterance is final: its draft becomes the reply, or a reply is begun."""
        session = self._session
        self._carried = ""
        try:
            take_turn(session, self._parts)
        except StrettoError as refusal:
            self.drafts.give_up("cancelled")
            session.outbox.put(error_frame(refusal))
            return
        draft = self.drafts.take(text)
        session.apply(Event.COMMITTED, "speech")
        item = session.conversation.add_user(text if draft is None else draft.text, item_id)
        started = TurnStarted(turn=0, item_id=item.item_id)
        if draft is None:
            turn = session.begin(structs.replace(session.plan(session.profile), input="speech", started_s=ended_s), started)
        else:
            turn = draft.turn
            session.adopt(turn, draft.task, started)
            turn.commit(ended_s)
        turn.answers(Spoken(began_s=self._started_s, ended_s=ended_s, decided_s=self._decided_s, text_s=self._parts.now()))
        self._asked = Asked(turn, item.item_id, item.text)

    @property
    def _only_notes(self) -> bool:
        """Whether the client's commits become items and nothing else: it asks for replies itself, and stops them itself."""
        return self._is_pushed and not self._session.profile.auto_reply

    def _tell(self, event: ServerEvent) -> None:
        """Send what is heard; while a reply is on its way, a client that would stop its player at once hears of words alone."""
        session = self._session
        if session.profile.is_clocked and self.awaits_words:
            self._withheld.append(event)
        else:
            session.outbox.put(event)

    def _ask_again(self) -> None:
        """Replies that had to wait for a text."""
        if self._put_off and self._listener is not None and not self._listener.is_reading:
            requests, self._put_off = self._put_off, []
            for request in requests:
                self._session.receive(request)

    def _stop_timer(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()
