"""One conversation: its history, its settings, its turns. Outlives its connection.

All state is changed by `receive` and by the turns' reports, on one event loop, without waiting in between. The session's task group owns
every turn; a barge-in cancels one turn's task and nothing else. Every decision about the floor is taken from `turn_state`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from typing import Literal

from gateway import events, turn_state
from gateway.errors import (
    AlreadyStarted,
    BadMessage,
    Draining,
    NotAvailable,
    StrettoError,
    Superseded,
    TextEmpty,
    TextTooLong,
    TurnActive,
    UnknownCall,
    UnknownTurn,
)
from gateway.events import (
    Ack,
    AddItem,
    Cancel,
    ClientEvent,
    DeleteItem,
    ErrorRaised,
    GoingAway,
    ItemAdded,
    ItemDeleted,
    Ping,
    Pong,
    ReportPlayout,
    RequestReply,
    Say,
    SendText,
    ServerEvent,
    SessionUpdated,
    StartSession,
    TurnStarted,
    TurnStatus,
    UpdateSession,
)
from gateway.history import History, Item, without_reasoning
from gateway.outbox import Outbox
from gateway.profile import Profile
from gateway.turn import Parts, Plan, Progress, Turn
from gateway.turn_state import Action, Event, State

REMEMBERED_IDS = 256  # a client that repeats a message does so right after a reconnect
MAX_ITEM_ID = 64

log = logging.getLogger("stretto.session")


class Attachment:
    """The connection that serves a session now; `ended` tells it to close, with the reason."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[StrettoError] = asyncio.get_running_loop().create_future()

    def end(self, reason: StrettoError) -> None:
        """Ask the connection to close; the first reason wins."""
        if not self.ended.done():
            self.ended.set_result(reason)


class Session:
    """Built by `Sessions.open`; `run` must be running while `receive` is called."""

    def __init__(self, session_id: str, profile: Profile, start: StartSession, parts: Parts) -> None:
        self.session_id = session_id
        self.profile = profile
        self.outbox = Outbox(parts.metrics, parts.now, parts.settings.session.slow_reader_s)
        self.history = History()
        self.attachment: Attachment | None = None
        self.opened = asyncio.Event()
        self._parts = parts
        self._state = State.LISTENING
        self._floor: Turn | None = None
        self._live: dict[int, tuple[Turn, asyncio.Task[None]]] = {}
        self._n_turns = 0
        self._is_draining = False
        self._closing = asyncio.Event()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._tasks: asyncio.TaskGroup
        for item in start.history:
            self.history.add(Item(item_id=_new_id(), role=item.role, text=self._checked(item.text)))

    @property
    def is_busy(self) -> bool:
        """Whether a turn is thought of, spoken or played out."""
        return any(not turn.is_over for turn, _ in self._live.values())

    @property
    def state(self) -> State:
        """Who holds the floor."""
        return self._state

    async def run(self) -> None:
        """Own the session's tasks until `close`; then stop them all. Raises what is our bug in a turn."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            self.opened.set()
            await self._closing.wait()
            for turn, task in self._live.values():
                self._parts.model.cancel(turn.request_id)
                task.cancel()

    def close(self) -> None:
        """End the conversation; running turns are cancelled."""
        self._closing.set()

    def attach(self) -> Attachment:
        """A new connection serves this session; an older one is told to close (4001)."""
        if self.attachment is not None:
            self.attachment.end(Superseded("Another connection resumed this session."))
        self.attachment = Attachment()
        self.outbox.restart_waits()
        for turn, _ in self._live.values():
            turn.attached()
        return self.attachment

    def detach(self, attachment: Attachment) -> bool:
        """The connection is gone: pacing stops, generation goes on. False when a newer connection serves already."""
        if self.attachment is not attachment:
            return False
        self.attachment = None
        for turn, _ in self._live.values():
            turn.detached()
        return True

    def drain(self, deadline_ms: int) -> None:
        """Tell the client that the server stops; running turns may finish, new ones are refused."""
        self._is_draining = True
        self.outbox.put(GoingAway(deadline_ms=deadline_ms))

    def receive(self, event: ClientEvent) -> None:
        """Act on a client event, and answer it exactly once when it carries an id. Never waits.

        Client errors become `error` frames. Raises `StrettoError` with a close code when the connection must end.
        """
        if event.id is not None and not isinstance(event, Ping):
            if event.id in self._seen:
                self.outbox.put(Ack(ref=event.id, repeated=True))
                return
            self._seen[event.id] = None
            if len(self._seen) > REMEMBERED_IDS:
                self._seen.popitem(last=False)
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

    def _react(self, event: ClientEvent) -> ServerEvent | None:
        match event:
            case SendText():
                return self._on_text(event)
            case Say():
                return self._on_request(event, say=self._checked(event.text))
            case RequestReply():
                return self._on_request(event, instructions=event.instructions)
            case Cancel():
                self._on_cancel(event)
            case ReportPlayout():
                self._on_playout(event)
            case AddItem():
                return self._on_add(event)
            case DeleteItem():
                self.history.delete(event.item_id)
                return ItemDeleted(ref=event.id, item_id=event.item_id)
            case UpdateSession():
                return self._on_update(event)
            case Ping():
                return Pong(ref=event.id, t=event.t)
            case StartSession():
                raise AlreadyStarted("This connection has started its session already; expected session.update.")
            case events.ToolResult():
                raise UnknownCall(f"No tool call {event.call_id[:80]!r} waits for a result.")
            case _:
                raise NotAvailable("This gateway takes no audio in; expected `text`.")
        return None

    def _on_text(self, event: SendText) -> ServerEvent:
        text = self._checked(event.text)
        self._refuse_while_draining()
        self._apply(Event.TEXT, "text")
        item = Item(item_id=_new_id(), role="user", text=text)
        self.history.add(item)
        return self._start_turn(event.id, item_id=item.item_id)

    def _on_request(self, event: Say | RequestReply, say: str | None = None, instructions: str | None = None) -> ServerEvent:
        self._refuse_while_draining()
        self._apply(Event.REPLY_REQUESTED)
        return self._start_turn(event.id, say=say, instructions=instructions)

    def _on_cancel(self, event: Cancel) -> None:
        if event.turn is None or (self._floor is not None and event.turn == self._floor.number):
            if self._state is State.LISTENING and self.is_busy:
                self._interrupt_all("cancel")
            else:
                self._apply(Event.CANCELLED, "cancel")
            return
        live = self._live.get(event.turn)
        if live is None or live[0].is_over:
            raise UnknownTurn(f"Turn {event.turn} is over or never was.")
        self._interrupt(live[0], "cancel")

    def _on_playout(self, event: ReportPlayout) -> None:
        live = self._live.get(event.turn)
        if live is not None:
            live[0].report_playout(event.played_ms, final=event.final)
        elif not 0 < event.turn <= self._n_turns:
            raise UnknownTurn(f"There was no turn {event.turn}.")

    def _on_add(self, event: AddItem) -> ServerEvent:
        item_id = _new_id() if event.item_id is None else event.item_id
        if not 0 < len(item_id) <= MAX_ITEM_ID:
            raise BadMessage(f"item_id has {len(item_id)} characters; expected 1 to {MAX_ITEM_ID}.")
        self.history.add(Item(item_id=item_id, role=event.role, text=self._checked(event.text)), event.after)
        return ItemAdded(ref=event.id, item_id=item_id)

    def _on_update(self, event: UpdateSession) -> ServerEvent:
        self.profile = profile = self.profile.updated(event, self._parts.voices)
        return SessionUpdated(
            ref=event.id,
            instructions=profile.instructions,
            language=profile.language,
            voice=profile.voice,
            output=profile.output,
            allow_barge_in=profile.allow_barge_in,
        )

    def _apply(self, event: Event, reason: Literal["cancel", "text", "speech"] = "cancel") -> None:
        """Look the event up in the table and do what it says. Raises the refusals."""
        after, action = turn_state.decide(self._state, event)
        match action:
            case Action.REFUSE:
                raise TurnActive("A reply is on its way; expected `cancel` first, or wait for its reply.done.")
            case Action.NO_TURN:
                raise UnknownTurn("No reply is on its way.")
            case Action.REPLACE | Action.INTERRUPT:
                self._interrupt_all(reason)
            case Action.FINISH:
                self._floor = None
            case Action.BUG | Action.DROP | Action.HOLD | Action.RELEASE:
                raise AssertionError(f"{event} in {self._state} cannot happen without audio in")
        self._state = after

    def _start_turn(
        self, ref: str | None, *, item_id: str | None = None, say: str | None = None, instructions: str | None = None
    ) -> ServerEvent:
        self._n_turns += 1
        profile, number = self.profile, self._n_turns
        reply = Item(item_id=_new_id(), role="assistant", text="", is_open=True)
        budget = self._parts.settings.session.context_tokens
        plan = Plan(
            number=number,
            session_id=self.session_id,
            reply_item_id=reply.item_id,
            language=profile.language,
            voice=profile.voice,
            output=profile.output,
            audio_out=profile.audio_out,
            messages=self.history.messages(profile.prompt(self._parts.rules, instructions), budget),
            kept=self.history.kept,
            say=say,
        )
        self.history.add(reply)
        turn = Turn(plan, self._parts, self.outbox, self._on_progress)
        self._floor = turn
        if self.attachment is None:
            turn.detached()
        self._live[number] = (turn, self._tasks.create_task(self._run_turn(turn), name=f"{self.session_id} turn {number}"))
        return TurnStarted(turn=number, item_id=item_id, ref=ref)

    async def _run_turn(self, turn: Turn) -> None:
        try:
            status = await turn.run()
        except StrettoError as error:  # the reader is too slow: its connection ends, the conversation stays
            status = "failed"
            if self.attachment is not None:
                self.attachment.end(error)
        if turn is self._floor:
            self._apply(Event.PLAYED_OUT if status == "completed" else Event.FAILED)
        if status == "failed":
            self._write_down(turn, is_final=False)
            await self._settle(turn, "failed")
        else:
            self._live.pop(turn.number, None)

    def _on_progress(self, turn: Turn, progress: Progress) -> None:
        if progress == "reply_sent":
            self.history.settle_reply(turn.plan.reply_item_id, without_reasoning(turn.raw_text()), is_final=True)
            self._keep_ids(turn, len(turn.raw_text()))
        if turn is self._floor:
            self._apply(Event.FIRST_SENT if progress == "first_sent" else Event.REPLY_SENT)

    def _interrupt_all(self, reason: Literal["cancel", "text", "speech"]) -> None:
        for turn, _ in list(self._live.values()):
            self._interrupt(turn, reason)
        self._floor = None

    def _interrupt(self, turn: Turn, reason: Literal["cancel", "text", "speech"]) -> None:
        """Stop a turn at once; history holds the estimate of what was heard until the client's last word."""
        live_task = self._live[turn.number][1]
        if turn.is_over or turn.is_stopped:
            return
        turn.stop(reason)
        live_task.cancel()
        self._write_down(turn, is_final=False)
        settle = self._tasks.create_task(self._settle(turn, "interrupted"), name=f"{self.session_id} turn {turn.number} settle")
        self._live[turn.number] = (turn, settle)

    async def _settle(self, turn: Turn, status: TurnStatus) -> None:
        await turn.settle(status)
        self._write_down(turn, is_final=True)
        self._live.pop(turn.number, None)

    def _write_down(self, turn: Turn, *, is_final: bool) -> None:
        raw_end = turn.heard_raw_end()
        text = without_reasoning(turn.raw_text()[:raw_end])
        self.history.settle_reply(turn.plan.reply_item_id, text, is_final=is_final)
        self._keep_ids(turn, raw_end)

    def _keep_ids(self, turn: Turn, raw_end: int) -> None:
        if turn.number == self._n_turns and (kept := turn.kept_ids(raw_end)) is not None:
            self.history.kept = kept

    def _refuse_while_draining(self) -> None:
        if self._is_draining:
            raise Draining("The server is about to stop and starts no new turns; reconnect.", retry_after_ms=1000)

    def _checked(self, text: str) -> str:
        limit = self._parts.settings.session.text_bytes
        n_bytes = len(text.encode("utf-8", "replace"))
        if n_bytes > limit:
            raise TextTooLong(f"The text has {n_bytes} bytes; expected at most {limit}.")
        if not text.strip() or not any(char.isprintable() and not char.isspace() for char in text):
            raise TextEmpty("The text holds nothing to read; expected at least one visible character.")
        return text


def error_frame(error: StrettoError, ref: str | None = None) -> ErrorRaised:
    """The `error` frame of an error that the peer may see."""
    return ErrorRaised(
        ref=error.ref or ref,
        code=error.code,
        message=str(error),
        retryable=error.retryable,
        retry_after_ms=error.retry_after_ms,
        turn=error.turn,
    )


def _new_id() -> str:
    return f"item_{secrets.token_hex(8)}"
