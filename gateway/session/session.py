"""One conversation: its history, its settings, its turns. Outlives its connection.

All state is changed by `receive` and by the turns' reports, on one event loop, without waiting in between. The session's task group owns
every turn; a barge-in cancels one turn's task and nothing else. Every decision about the floor is taken from `turn_state`.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from msgspec import structs

from engine.api import ToolCall
from gateway import turn_state
from gateway.errors import AlreadyStarted, NotAvailable, StrettoError, Superseded, TurnActive, UnknownTurn
from gateway.events import (
    Ack,
    AddItem,
    AppendAudio,
    AudioIn,
    Cancel,
    ClearInput,
    ClientEvent,
    CommitInput,
    DeleteItem,
    GoingAway,
    ItemInfo,
    Mute,
    Ping,
    Pong,
    ReportPlayout,
    RequestReply,
    RetrieveItem,
    Say,
    SendText,
    ServerEvent,
    StartSession,
    ToolResult,
    TruncateItem,
    TurnStarted,
    TurnStatus,
    UpdateSession,
)
from gateway.history import History
from gateway.outbox import Outbox
from gateway.profile import Profile
from gateway.session.answered import Answered
from gateway.session.attachment import Attachment
from gateway.session.conversation import Conversation
from gateway.session.decoding import Decoding
from gateway.session.frames import error_frame
from gateway.session.items import Bounds
from gateway.session.listening import Listening
from gateway.session.live_turns import LiveTurns
from gateway.session.moderated import after_refusal
from gateway.session.planning import changed, planned
from gateway.session.refusals import take_turn
from gateway.turn import Parts, Plan, Progress, SentCall, Turn
from gateway.turn_state import Action, Event, State

_PROGRESS: dict[Progress, Event] = {
    "first_sent": Event.FIRST_SENT,
    "tools_returned": Event.TOOL_RETURNED,
    "reply_sent": Event.REPLY_SENT,
}


class Session:
    """Built by `Sessions.open`; `run` must be running while `receive` is called."""

    def __init__(self, session_id: str, profile: Profile, start: StartSession, parts: Parts) -> None:
        self.session_id = session_id
        self.profile = profile
        self.start = start  # how it is listened to is kept up to date, for whoever goes on with it
        self.outbox = Outbox(parts.metrics, parts.now, parts.settings.session.slow_reader_s)
        bounds = Bounds(text_bytes=parts.settings.session.text_bytes, may_instruct=profile.rights.instructions)
        self.conversation = Conversation(parts.rules, bounds, keeps_silent=profile.is_clocked)
        self.attachment: Attachment | None = None
        self.opened = asyncio.Event()
        self._parts = parts
        self._state = State.LISTENING
        self.floor: Turn | None = None  # the turn that has it; read by `listening`, as `n_turns` and `is_draining`
        self._live = LiveTurns()
        self.n_turns = 0
        self.is_draining = False
        self._closing = asyncio.Event()
        self.has_spoken = False  # whether the attached client has sent anything since it attached
        self.answered = Answered()
        self._tasks: asyncio.TaskGroup
        self.conversation.seed(start.history)
        self._listening = Listening(self, start, parts)

    @property
    def history(self) -> History:
        """The items of the conversation."""
        return self.conversation.history

    @property
    def audio_in(self) -> AudioIn | None:
        """What is taken from the client's microphone; None where nobody listens."""
        return self._listening.audio_in

    @property
    def decoding(self) -> Decoding:
        """What a client's compressed speech goes through before `receive`."""
        return self._listening.decoding

    @property
    def is_busy(self) -> bool:
        """Whether a turn is thought of, spoken or played out."""
        return bool(self.live_turns)

    @property
    def live_turns(self) -> list[Turn]:
        """Those that are thought of, spoken, played out, or wait for their listener's last word."""
        return [turn for turn in self._live if not turn.is_over]

    @property
    def state(self) -> State:
        """Who holds the floor."""
        return self._state

    async def run(self) -> None:
        """Own the session's tasks until `close`; then stop them all. Raises what is our bug in a turn."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            listen = tasks.create_task(self._listening.run(), name=f"{self.session_id} listening")
            self.opened.set()
            await self._closing.wait()
            listen.cancel()
            self._live.discard()

    def close(self) -> None:
        """End the conversation; running turns are cancelled."""
        self._closing.set()

    def attach(self) -> Attachment:
        """A new connection serves this session; an older one is told to close (4001)."""
        if self.attachment is not None:
            self.attachment.end(Superseded("Another connection resumed this session."))
        self.attachment = Attachment()
        self.has_spoken = False
        self.outbox.restart_waits()
        for turn in self._live:
            turn.attached()
        return self.attachment

    def detach(self, attachment: Attachment) -> bool:
        """The connection is gone: pacing stops, generation goes on. False when a newer connection serves already."""
        if self.attachment is not attachment:
            return False
        self.attachment = None
        for turn in self._live:
            turn.detached()
        return True

    def drain(self, deadline_ms: int) -> None:
        """Tell the client that the server stops; running turns may finish, new ones are refused."""
        self.is_draining = True
        self.outbox.put(GoingAway(deadline_ms=deadline_ms))

    def receive(self, event: ClientEvent) -> None:
        """Act on a client event, and answer it exactly once when it carries an id. Never waits.

        Client errors become `error` frames. Raises `StrettoError` with a close code when the connection must end.
        """
        if self._closing.is_set():  # its connection is told to end
            return
        if isinstance(event, RequestReply) and self._listening.puts_off(event):
            return
        self.has_spoken = True
        if event.id is not None and not isinstance(event, Ping) and not self.answered.is_new(event.id):
            self.outbox.put(Ack(ref=event.id, repeated=True))
            return
        try:
            answer = self._react(event)
        except StrettoError as error:
            if error.close is not None:
                raise
            self.outbox.put(error_frame(error, event.id))
            return
        if answer is not None:
            self.outbox.put(answer)
        elif event.id is not None:
            self.outbox.put(Ack(ref=event.id))

    def configure(self, wish: UpdateSession) -> None:
        """Change the settings, all of them or none. Raises as `Profile.updated`, and `UnsupportedCodec`."""
        before, self.profile = self.profile, changed(self.profile, wish, self._parts)
        try:
            self._listening.update(wish)
        except StrettoError:
            self.profile = before
            raise

    def _react(self, event: ClientEvent) -> ServerEvent | None:
        match event:
            case SendText():
                return self._on_text(event)
            case Say():
                return self._on_say(event)
            case RequestReply():
                return self._on_request(event)
            case Cancel():
                self._on_cancel(event)
            case ReportPlayout():
                self._live.report_playout(event, self.n_turns)
            case AddItem():
                return self.conversation.add(event)
            case DeleteItem():
                return self.conversation.delete(event)
            case RetrieveItem():
                return self.conversation.retrieve(event)
            case TruncateItem():
                return self.conversation.truncate(event)
            case ToolResult():
                self._live.take_result(self.conversation.take_result(event), event)
            case UpdateSession():
                self.configure(event)
                return self.profile.described(event.id)
            case Ping():
                return Pong(ref=event.id, t=event.t)
            case AppendAudio() | CommitInput() | ClearInput() | Mute():
                self._listening.receive(event)
            case StartSession():
                raise AlreadyStarted("This connection has started its session already; expected session.update.")
            case _:
                raise NotAvailable("This gateway takes no audio in; expected `text`.")
        return None

    def _on_text(self, event: SendText) -> ServerEvent:
        text = self.conversation.checked(event.text)
        take_turn(self, self._parts)
        self.apply(Event.TEXT, "text")
        item = self.conversation.add_user(text)
        return self._start_turn(self.plan(self.profile), TurnStarted(ref=event.id, turn=0, item_id=item.item_id))

    def _on_say(self, event: Say) -> ServerEvent:
        text = self.conversation.checked(event.text)
        take_turn(self, self._parts)
        self.apply(Event.REPLY_REQUESTED)
        return self._start_turn(structs.replace(self.plan(self.profile), say=text), TurnStarted(ref=event.id, turn=0))

    def _on_request(self, event: RequestReply) -> ServerEvent:
        """A reply to what the conversation holds, or out of band beside it."""
        take_turn(self, self._parts)
        has_floor = event.conversation == "default"
        plan = self.plan(changed(self.profile, event, self._parts), event.input, has_floor=has_floor)
        if has_floor:
            self.apply(Event.REPLY_REQUESTED)
        else:
            self._live.check_room()
        started = TurnStarted(ref=event.id, turn=0, conversation=None if has_floor else "none", metadata=event.metadata)
        return self._start_turn(plan, started)

    def _on_cancel(self, event: Cancel) -> None:
        """Stop a reply. One that merely plays out is left to a client that keeps its own clock (`item.truncate`)."""
        if event.turn is not None and (self.floor is None or event.turn != self.floor.number):
            turn = self._live.find(event.turn)
            if turn is None or turn.is_over or (self.profile.is_clocked and turn.is_sent):
                raise UnknownTurn(f"Turn {event.turn} is over or never was.")
            self._interrupt(turn, "cancel")
        elif self.profile.is_clocked and (self.floor is None or self.floor.is_sent):
            raise UnknownTurn("No reply is on its way.")
        elif self._state is State.LISTENING and any(turn.plan.has_floor for turn in self.live_turns):
            self._interrupt_all("cancel")
        else:
            self.apply(Event.CANCELLED, "cancel")

    def apply(self, event: Event, reason: Literal["cancel", "text", "speech"] = "cancel") -> None:
        """Look the event up in the table and do what it says. Raises the refusals."""
        after, action = turn_state.decide(self._state, event)
        match action:
            case Action.REFUSE:
                raise TurnActive("A reply is on its way; expected `cancel` first, or wait for its reply.done.")
            case Action.NO_TURN:
                raise UnknownTurn("No reply is on its way.")
            case Action.REPLACE | Action.INTERRUPT:
                self._listening.drafts.drop()
                self._interrupt_all(reason)
            case Action.FINISH:
                self.floor = None
            case Action.DROP:
                self._listening.drafts.drop()
            case Action.HOLD if self.floor is not None:
                self._listening.hold(self.floor)
            case Action.RELEASE if self.floor is not None:
                self._listening.release(self.floor)
            case Action.BUG | Action.HOLD | Action.RELEASE:
                raise AssertionError(f"{event} in {self._state} cannot happen")
        self._state = after
        if action is Action.RELEASE and self.floor is not None and self.floor.is_sent:
            self._state, _ = turn_state.decide(after, Event.REPLY_SENT)

    def plan(self, profile: Profile, given: tuple[ItemInfo, ...] | None = None, *, has_floor: bool = True) -> Plan:
        """What the next turn would be told, as things stand. Raises as `Conversation.context`."""
        return planned(self, self._parts, profile, given, has_floor=has_floor)

    def _start_turn(self, plan: Plan, started: TurnStarted) -> ServerEvent:
        """Begin the planned turn; `started` lacks what only the turn knows."""
        turn, task = self.draft(plan)
        return self._adopt(turn, task, started)

    def begin(self, plan: Plan, started: TurnStarted) -> Turn:
        """Begin a turn that no client event asked for, and tell of it."""
        turn, task = self.draft(plan)
        self.adopt(turn, task, started)
        return turn

    def draft(self, plan: Plan) -> tuple[Turn, asyncio.Task[None]]:
        """Begin to make the planned turn; it is none of the conversation's before `adopt`."""
        turn = Turn(plan, self._parts, self.outbox, self)
        return turn, self._tasks.create_task(self._run_turn(turn), name=f"{self.session_id} turn {plan.number}")

    def adopt(self, turn: Turn, task: asyncio.Task[None], started: TurnStarted) -> None:
        """The turn is the conversation's next one: tell of it."""
        self.outbox.put(self._adopt(turn, task, started))

    def _adopt(self, turn: Turn, task: asyncio.Task[None], started: TurnStarted) -> ServerEvent:
        plan = turn.plan
        self.n_turns = plan.number
        after = self.conversation.open_reply(turn)
        if plan.has_floor:
            self.floor = turn
        if self.attachment is None:
            turn.detached()
        self._listening.turn_began()
        self._live.put(turn, task)
        sound = plan.audio_out if plan.output == "audio" else None
        return structs.replace(started, turn=plan.number, reply_id=plan.reply_item_id, after=after, output=plan.output, audio_out=sound)

    async def _run_turn(self, turn: Turn) -> None:
        try:
            status = await turn.run()
        except StrettoError as error:  # the reader is too slow: its connection ends, the conversation stays
            status = "failed"
            if self.attachment is not None:
                self.attachment.end(error)
        if self._listening.drafts.lost(turn):
            return
        if turn is self.floor:
            self.apply(Event.PLAYED_OUT if turn.is_sent and status != "failed" else Event.FAILED)
            self._listening.idling.reply_over(turn)
        if status == "failed" or not turn.is_sent:
            self.conversation.drop_calls(turn)
            self.conversation.write_down(turn, turn.heard_raw_end(), is_final=False)
            await self._settle(turn, status)
        else:
            self._live.remove(turn)
            self._listening.upkeep.turn_ended(was_cut=False)
        if status == "refused":
            after_refusal(self, self._parts, turn)

    def on_progress(self, turn: Turn, progress: Progress) -> None:
        """Something of a turn left, or its tools returned."""
        if progress == "reply_sent":
            self.conversation.write_down(turn, turn.raw_end(), is_final=True)
        if turn is self.floor:
            self.apply(_PROGRESS[progress])
            if progress == "tools_returned" and turn.is_heard:
                self.apply(Event.FIRST_SENT)

    def on_calls(self, turn: Turn, calls: tuple[ToolCall, ...]) -> tuple[SentCall, ...]:
        """The model wants tools called: they get ids and items, and the floor waits."""
        if turn is self.floor:
            self.apply(Event.TOOL_CALLED)
        return self.conversation.open_calls(turn, calls)

    def on_reply_continued(self, turn: Turn) -> str:
        """The reply goes on behind its tools' results."""
        return self.conversation.continue_reply(turn)

    def _interrupt_all(self, reason: Literal["cancel", "text", "speech"]) -> None:
        """Stop the floor turn, and what plays out in front of it unless its client keeps its own clock."""
        for turn in self._live:
            if turn.plan.has_floor and not (self.profile.is_clocked and turn.is_sent):
                self._interrupt(turn, reason)
        self.floor = None

    def _interrupt(self, turn: Turn, reason: Literal["cancel", "text", "speech"]) -> None:
        """Stop a turn at once; history holds the estimate of what was heard until the client's last word."""
        if turn.is_over or turn.is_stopped:
            return
        turn.stop(reason)
        self._live.cancel(turn)
        self.conversation.drop_calls(turn)
        self.conversation.write_down(turn, turn.heard_raw_end(), is_final=False)
        status: TurnStatus = "superseded" if turn.is_superseded else "interrupted"
        self._live.put(turn, self._tasks.create_task(self._settle(turn, status), name=f"{self.session_id} turn {turn.number} settle"))

    async def _settle(self, turn: Turn, status: TurnStatus) -> None:
        await turn.settle(status)
        self.conversation.write_down(turn, turn.heard_raw_end(), is_final=True)
        self._live.remove(turn)
        self._listening.upkeep.turn_ended(was_cut=True)
