"""The spoken side of a conversation: utterances become turns, drafts and interruptions.

The listener tells what is heard, `turn_state` who may have the floor, `endpointing.judge` whether words interrupt, `speculation` what
becomes of a draft; here the session is made to do it. Changed on the loop, without waiting in between.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, structs

from engine.api import EngineSetupError, Message
from gateway.endpointing import Reading, is_echo, judge, read
from gateway.errors import Draining, NotAvailable, StrettoError, UnsupportedCodec
from gateway.events import (
    AppendAudio,
    AudioIn,
    ClearInput,
    CommitInput,
    Mute,
    PlayoutPaused,
    PlayoutResumed,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    Transcribed,
    TurnStarted,
)
from gateway.listener import Listener, Utterance
from gateway.session.frames import error_frame
from gateway.session.warming import Warming
from gateway.speculation import Outcome, Speculation
from gateway.turn import Parts, Turn
from gateway.turn_state import Event, State

if TYPE_CHECKING:
    from gateway.session.session import Session

REPLYING = frozenset({State.THINKING, State.SPEAKING, State.HELD, State.AWAITING_TOOL, State.PLAYING_OUT})


class Asked(Struct, frozen=True):
    """The spoken utterance that a turn answers."""

    turn: Turn
    item_id: str
    text: str


class Listening:
    """What a session hears; nothing where the gateway has no ears.

    `run` is its task; the listener calls the `on_` methods, the session `hold`, `release`, `drop_draft` and what else it must know.
    Raises `UnsupportedCodec` where a codec's library is missing.
    """

    def __init__(self, session: Session, start: StartSession, parts: Parts) -> None:
        self._session, self._parts = session, parts
        self._listening = parts.metrics.listening
        self._is_pushed = start.turn_detection == "push_to_talk"
        self.audio_in = None if parts.ears is None else start.audio_in or AudioIn()
        self._listener = self._make_listener(start, parts)
        self.set_language(start.language)
        self._speculation = Speculation(parts.settings.speculation)
        self._draft: tuple[Turn, str, asyncio.Task[None]] | None = None
        self._n_drafts = 0
        self._dropped_as: Outcome = "cancelled"
        self._started_s = 0.0
        self._is_confirmed = False  # the utterance that is being heard interrupts (or no reply is there to be interrupted)
        self._held_s: float | None = None
        self._hold_timer: asyncio.TimerHandle | None = None
        self._asked: Asked | None = None
        self._echoed: Turn | None = None  # the newest reply that came back through the microphone
        self._carried = ""  # what the speaker had said before they went on
        self._warming = Warming(session.session_id, parts, lambda: session.plan(session.profile))
        self._is_over = False
        self._tasks: asyncio.TaskGroup

    async def run(self) -> None:
        """Listen until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                if self._listener is not None:
                    tasks.create_task(self._listener.run(), name=f"{self._session.session_id} listen")
                try:
                    await asyncio.Event().wait()
                finally:
                    self._is_over = True
        finally:
            self._stop_timer()
            self.drop_draft()

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

    def set_language(self, language: str | None) -> None:
        """The client says which language is spoken; without a word of it the recognizer finds out."""
        if self._listener is not None and language is not None:
            self._listener.language = language.partition("-")[0].lower()

    def listen_by(self, turn_detection: Literal["auto", "push_to_talk"]) -> None:
        """Who ends an utterance from now on."""
        self._is_pushed = turn_detection == "push_to_talk"
        if self._listener is not None:
            self._listener.listen_by(turn_detection)

    @property
    def is_deaf(self) -> bool:
        """Whether a reply may not be interrupted now."""
        return not self._session.profile.allow_barge_in and self._session.state in REPLYING

    def on_speech_started(self, number: int, at_ms: int, started_s: float) -> None:
        """Somebody speaks: a reply that sounds is paused, a cold prompt is warmed."""
        session = self._session
        self._started_s, self._is_confirmed = started_s, False
        session.outbox.put(SpeechStarted(utterance=number, at_ms=at_ms))
        if session.state is State.LISTENING:
            self.warm_up()
        if session.floor is None or session.floor is not self._echoed:  # a client that hears us would pause us again and again
            self._apply(Event.SPEECH_STARTED, "resumed")
        self._speculation = Speculation(self._parts.settings.speculation)

    def on_text(self, number: int, text: str) -> None:
        """Words so far: they may stop a reply."""
        self._session.outbox.put(Transcribed(utterance=number, text=text, final=False))
        self._judge(text, is_final=False)

    def on_likely_end(self, number: int, text: str, *, ended_s: float) -> None:
        """The speaker may have finished: a draft is begun, kept, or replaced by one for a better text."""
        if self._session.state in REPLYING:
            return
        text = self._merged(text)
        settings = self._parts.settings.speculation
        looks_finished = read(text) in (Reading.COMPLETE, Reading.OPEN)
        has_headroom = self._parts.headroom.admits_draft(settings)
        step = self._speculation.on_likely_end(text, looks_finished=looks_finished, has_headroom=has_headroom)
        if step == "skip" and settings.enabled and looks_finished and not has_headroom:
            self._listening.speculation.labels("no_headroom").inc()
        if step in ("replace", "drop"):
            self._apply_if_drafting("changed")
        if step in ("start", "replace"):
            self._begin_draft(text, ended_s)

    def on_speech_resumed(self, number: int) -> None:
        """It was a pause: the draft answered half a sentence."""
        if self._draft is not None:
            self._apply(Event.SPEECH_STARTED, "resumed")

    def on_speech_ended(self, number: int, at_ms: int) -> None:
        """The utterance is over."""
        self._session.outbox.put(SpeechEnded(utterance=number, at_ms=at_ms))

    def on_utterance(self, utterance: Utterance) -> None:
        """The final text: it interrupts, or lets the reply go on; and it is answered."""
        self._judge(utterance.text, is_final=True)
        session = self._session
        is_answered = (session.state not in REPLYING or self._is_confirmed) and not self._is_late_echo(utterance.text)
        text = self._merged(utterance.text) if is_answered else ""
        is_same = self._speculation.on_final(text) == "commit"
        turn = session.n_turns + 1 if text and not session.is_draining else None
        session.outbox.put(Transcribed(utterance=utterance.number, text=utterance.text, final=True, turn=turn))
        if text:
            self._answer(text, utterance.ended_s, is_same=is_same)
        else:
            self._apply_if_drafting("changed")

    def on_nothing(self, number: int, why: Literal["noise", "cleared", "failed", "crowded"], error: StrettoError | None = None) -> None:
        """No text comes of the utterance: a paused reply goes on, and what was said before it is answered."""
        if error is not None:
            self._session.outbox.put(error_frame(error))
        self._dismiss()
        self._apply_if_drafting("failed" if error is not None else "cancelled")
        if self._carried and self._session.state is State.LISTENING and why != "cleared":
            self._answer(self._merged(""), self._parts.now(), is_same=False)

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

    def drop_draft(self) -> None:
        """The floor's table says: the draft is gone; or the session ends."""
        draft, self._draft = self._draft, None
        self._speculation.forget()
        if draft is None:
            return
        turn, _, task = draft
        turn.discard()
        task.cancel()
        self._listening.speculation.labels(self._dropped_as).inc()
        self._listening.speculation_wasted.inc(turn.n_tokens)
        self._dropped_as = "cancelled"

    def lost(self, turn: Turn) -> bool:
        """A turn has failed: whether it was the draft, which nobody misses."""
        if self._draft is None or turn is not self._draft[0]:
            return False
        self._apply(Event.FAILED, "failed")
        return True

    def warm_up(self) -> None:
        """Put the conversation into the engine's prefix cache, if nothing was asked for a while."""
        if self._listener is not None and self._warming.is_cold and not self._is_over:
            self._warming.touch()
            self._tasks.create_task(self._warming.run(), name=f"{self._session.session_id} warm-up")

    def turn_began(self) -> None:
        """A request is on its way."""
        self._warming.touch()

    def history_cut(self) -> None:
        """A reply was cut to what was heard."""
        self._warming.cool()
        if self._session.state is State.LISTENING:
            self.warm_up()

    def _make_listener(self, start: StartSession, parts: Parts) -> Listener | None:
        if parts.ears is None or self.audio_in is None:
            return None
        session_id, mode = self._session.session_id, start.turn_detection
        try:
            return Listener(session_id, self.audio_in, mode, parts.settings, parts.ears, self._listening, parts.now, self)
        except EngineSetupError as error:
            raise UnsupportedCodec(f"audio_in.codec {self.audio_in.codec!r} is not available here; its library is missing.") from error

    def _judge(self, text: str, *, is_final: bool) -> None:
        """Whether the words stop the reply that is on its way."""
        session = self._session
        if session.state not in REPLYING or self._is_confirmed:
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
        is_merged = asked is not None and asked.turn is session.floor and self._goes_on(asked.turn)
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

    def _begin_draft(self, text: str, ended_s: float) -> None:
        session = self._session
        self._n_drafts += 1
        plan = session.plan(session.profile)
        plan = structs.replace(
            plan,
            messages=(*plan.messages, Message(role="user", text=text)),
            input="speech",
            started_s=ended_s,
            draft=self._n_drafts,
        )
        turn, task = session.draft(plan)
        self._draft = (turn, text, task)
        self._speculation.began(text)
        session.apply(Event.DRAFT_STARTED)

    def _answer(self, text: str, ended_s: float, *, is_same: bool) -> None:
        """A spoken utterance is final: its draft becomes the reply, or a reply is begun."""
        session, draft = self._session, self._draft
        self._carried = ""
        if session.is_draining:
            self._apply_if_drafting("cancelled")
            session.outbox.put(
                error_frame(Draining("The server is about to stop and starts no new turns; reconnect.", retry_after_ms=1000))
            )
            return
        if draft is not None and is_same and draft[0].number == session.n_turns + 1:
            turn, answered, task = draft
            self._draft = None
            self._listening.speculation.labels("committed").inc()
            session.apply(Event.COMMITTED)
            item = session.conversation.add_user(answered)
            session.adopt(turn, task, TurnStarted(turn=0, item_id=item.item_id))
            turn.commit(ended_s)
        else:
            self._apply_if_drafting("changed")
            session.apply(Event.COMMITTED, "speech")
            item = session.conversation.add_user(text)
            plan = structs.replace(session.plan(session.profile), input="speech", started_s=ended_s)
            turn = session.begin(plan, TurnStarted(turn=0, item_id=item.item_id))
        self._asked = Asked(turn, item.item_id, item.text)

    def _apply_if_drafting(self, outcome: Outcome) -> None:
        if self._draft is not None:
            self._apply(Event.CANCELLED, outcome)

    def _apply(self, event: Event, outcome: Outcome) -> None:
        """Apply an event that may drop the draft; `outcome` is what it counts as then."""
        self._dropped_as = outcome
        self._session.apply(event)
        self._dropped_as = "cancelled"

    def _stop_timer(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None
