"""One conversation over one connection at a time: requests and their answers, replies, playout reports, resume.

Two tasks, owned by `connect`: one reads, one reports playout. The caller's own task writes.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gateway.client.dialing import Dialer, GetTicket
from gateway.client.faults import RESUMABLE_CLOSES, ConversationError, ConversationLost, NoAnswer, Refused
from gateway.client.hearing import Hearing
from gateway.client.playout import Player, SimulatedPlayer
from gateway.client.reply import Reply
from gateway.client.reporter import PlayoutReporter
from gateway.codecs.native import decode_server, encode_client
from gateway.errors import CLOSE_DRAINING, ClientError, UnknownType
from gateway.events import (
    AddItem,
    AppendAudio,
    AudioFrame,
    Cancel,
    ClearInput,
    ClientEvent,
    CommitInput,
    DeleteItem,
    Endpointing,
    ErrorRaised,
    Interrupted,
    ItemAdded,
    Mute,
    Ping,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    RequestReply,
    Resume,
    Role,
    Say,
    SendText,
    ServerEvent,
    SessionReady,
    SessionUpdated,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    Transcribed,
    TurnDone,
    TurnStarted,
    UpdateSession,
)

DEFAULT_URL = "ws://127.0.0.1:8080/v1/voice"
N_REPLIES_KEPT = 16  # replies that nobody asked for (another client's, a greeting) are found by their turn for a while
MOVE_S = 5.0  # a server that stops: another one that has its conversations answers soon, or none does
RECONNECT_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # then every 2 s, each with up to half of it again, so that clients do not return in step

_Event = TypeVar("_Event", bound=ServerEvent)


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    *,
    key: str | None = None,
    ticket: str | GetTicket | None = None,
    start: StartSession | None = None,
    player: Player | None = None,
    timeout_s: float = 10.0,
    resume_s: float = 60.0,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[Conversation, None]:
    """An open conversation, ended with the block.

    `ticket`: instead of a key; a function is asked for a new one at each connection, a text opens the first alone.
    `player`: what plays the audio and is asked for playout reports; by default a silent one in real time. `timeout_s`: for the
    connection and for every answer. `resume_s`: how long a dropped connection is tried again (0: never).
    Raises `ConnectFailed`, `Refused` (the server does not start this session), `NoAnswer`; inside the block what its methods raise.
    """
    dialer = Dialer(url, key=key, ticket=ticket, timeout_s=timeout_s, tls=tls)
    conversation = Conversation(dialer, start or StartSession(), player, resume_s)
    await conversation.open()
    failure: Exception | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(conversation.read(), name="client-read")
            reporting = tasks.create_task(conversation.reporter.run(), name="client-playout")
            try:
                yield conversation
            except Exception as error:  # the block's own: kept out of the group, so that the caller sees it unwrapped
                failure = error
            reading.cancel()
            reporting.cancel()
    finally:
        await conversation.close()
    if failure is not None:
        raise failure


class Conversation:
    """What the caller talks to; made by `connect`. Methods that wait for an answer raise `Refused`, `NoAnswer`, `ConversationLost`."""

    def __init__(self, dialer: Dialer, start: StartSession, player: Player | None, resume_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._dialer = dialer
        self._start = start
        self._resume_s = resume_s
        self._player = player or SimulatedPlayer(self._loop.time)
        self._socket: ClientConnection | None = None
        self._attached = asyncio.Event()
        self._lost: ConversationError | None = None
        self._n_sent = 0
        self._pending: dict[str, tuple[ClientEvent, asyncio.Future[ServerEvent]]] = {}
        self._asked_s: dict[str, float] = {}
        self._replies: dict[int, Reply] = {}
        self.last_seq = 0
        self.n_resumes = 0
        self.ready: SessionReady
        self.hearing = Hearing()
        self.reporter = PlayoutReporter(self._player, self._send_quietly, self._loop.time)

    # --- what a caller asks for ---

    async def text(self, text: str) -> Reply:
        """Say something in writing; the reply begins at once."""
        return await self._ask(SendText(text=text))

    async def say(self, text: str) -> Reply:
        """Let the assistant speak exactly this."""
        return await self._ask(Say(text=text))

    async def request_reply(self, instructions: str | None = None) -> Reply:
        """Let the assistant speak first."""
        return await self._ask(RequestReply(instructions=instructions))

    async def add_item(self, role: Role, text: str, *, after: str | None = None) -> str:
        """Put a message into the conversation; returns its id."""
        return (await self._request(AddItem(role=role, text=text, after=after), ItemAdded)).item_id

    async def delete_item(self, item_id: str) -> None:
        """Take a message out of the conversation."""
        await self._request(DeleteItem(item_id=item_id), ServerEvent)

    async def update(
        self,
        *,
        instructions: str | None = None,
        language: str | None = None,
        voice: str | None = None,
        output: Literal["audio", "text"] | None = None,
        allow_barge_in: bool | None = None,
        turn_detection: Literal["auto", "push_to_talk"] | None = None,
        endpointing: Endpointing | None = None,
        speed: float | None = None,
    ) -> SessionUpdated:
        """Change settings from the next turn on (when an utterance ends: at once); returns those in force."""
        event = UpdateSession(
            instructions=instructions,
            language=language,
            voice=voice,
            output=output,
            allow_barge_in=allow_barge_in,
            turn_detection=turn_detection,
            endpointing=endpointing,
            speed=speed,
        )
        return await self._request(event, SessionUpdated)

    async def cancel(self, turn: int | None = None) -> None:
        """Stop the current reply, or the one named; its `Reply` ends with `turn.done`."""
        await self._request(Cancel(turn=turn), ServerEvent)

    async def ping(self) -> float:
        """Seconds to the server and back."""
        start_s = self._loop.time()
        await self._request(Ping(t=start_s), ServerEvent)
        return self._loop.time() - start_s

    async def append_audio(self, data: bytes, pts_ms: float) -> None:
        """Microphone audio in the format of `ready.audio_in` (None: nobody listens). What comes of it is in `hearing`.

        Not answered, and lost while the connection is down: old speech is of no use.
        """
        await self._send_quietly(AppendAudio(data=data, pts_ms=pts_ms))

    async def commit(self) -> None:
        """Push-to-talk released."""
        await self._request(CommitInput(), ServerEvent)

    async def clear(self) -> None:
        """Throw away what was said and is no utterance yet."""
        await self._request(ClearInput(), ServerEvent)

    async def mute(self, *, on: bool) -> None:
        """The microphone is off, or on again."""
        await self._request(Mute(on=on), ServerEvent)

    def reply(self, turn: int) -> Reply | None:
        """A reply by its number, also one that was not asked for here."""
        return self._replies.get(turn)

    # --- requests and answers ---

    async def _ask(self, event: ClientEvent) -> Reply:
        started = await self._request(event, TurnStarted)
        return self._replies[started.turn]

    async def _request(self, event: ClientEvent, kind: type[_Event]) -> _Event:
        """Send `event` under a new id and wait for its answer; after a resume it is sent again, and done once."""
        if self._lost is not None:
            raise self._lost
        self._n_sent += 1
        ref = event.id or f"c{self._n_sent}"
        event = msgspec.structs.replace(event, id=ref)
        answer: asyncio.Future[ServerEvent] = self._loop.create_future()
        self._pending[ref] = (event, answer)
        self._asked_s[ref] = self._loop.time()
        try:
            async with asyncio.timeout(self._dialer.timeout_s + (0 if self._attached.is_set() else self._resume_s)):
                await self._send_quietly(event)
                got = await answer
        except TimeoutError as error:
            raise NoAnswer(f"no answer to {event.__struct_config__.tag} within {self._dialer.timeout_s} s", retryable=True) from error
        finally:
            del self._pending[ref], self._asked_s[ref]
        if isinstance(got, ErrorRaised):
            raise Refused(got)
        if not isinstance(got, kind):
            raise ConversationError(f"{event.__struct_config__.tag} was answered with {got.__struct_config__.tag}")
        return got

    async def _send_quietly(self, event: ClientEvent) -> None:
        """Send now, or not at all: a lost connection is the reader's business."""
        if self._socket is None or not self._attached.is_set():
            return
        try:
            await self._socket.send(encode_client(event))
        except ConnectionClosed:
            self._attached.clear()

    # --- the connection ---

    async def open(self, resume: Resume | None = None) -> None:
        """Connect and start, or take up again, the session. Raises as `connect`."""
        socket = await self._dialer.dial("" if resume is None else resume.session_id)
        try:
            async with asyncio.timeout(self._dialer.timeout_s):
                await socket.send(encode_client(msgspec.structs.replace(self._start, resume=resume)))
                self.ready = _as_ready(await socket.recv(decode=False))
        except TimeoutError as error:
            await socket.close()
            raise NoAnswer(f"no session.ready within {self._dialer.timeout_s} s", retryable=True) from error
        except ConnectionClosed as closed:
            raise _lost(closed) from closed
        except BaseException:
            await socket.close()
            raise
        self._socket = socket
        self.reporter.audio_out = self.ready.audio_out
        self._attached.set()

    async def close(self) -> None:
        """End the session: a normal close tells the server that we will not come back."""
        self._end(ConversationLost(1000, "the client closed the conversation"))
        if self._socket is not None:
            await self._socket.close(1000)

    async def read(self) -> None:
        """Receive until the conversation is lost for good."""
        while self._lost is None:
            assert self._socket is not None, "open() comes before read()"
            try:
                while True:
                    self._on_frame(await self._socket.recv(decode=False))
            except ConnectionClosed as closed:
                self._attached.clear()
                lost = _lost(closed)
            except ClientError as error:
                await self._socket.close(1002)
                lost = ConversationLost(1002, f"the server sent what this client cannot read: {error}")
            wait_s = self._resume_s if lost.close_code in RESUMABLE_CLOSES else MOVE_S if lost.close_code == CLOSE_DRAINING else 0.0
            if not await self._resume(min(wait_s, self._resume_s)):
                self._end(lost)

    async def _resume(self, within_s: float) -> bool:
        """Whether the session goes on over a new connection."""
        deadline_s = self._loop.time() + within_s
        attempt = 0
        while self._loop.time() < deadline_s:
            wish = Resume(session_id=self.ready.session_id, token=self.ready.resume_token, last_seq=self.last_seq)
            try:
                await self.open(wish)
            except ConversationError as error:
                if not error.retryable:
                    return False
                pause_s = error.retry_after_s or RECONNECT_S[min(attempt, len(RECONNECT_S) - 1)]
                await asyncio.sleep(pause_s * (1 + random.random() / 2))
                attempt += 1
                continue
            if not self.ready.resumed:
                return False
            self.n_resumes += 1
            self._end_lost_turns(self.ready.turns)
            for event, _ in list(self._pending.values()):
                await self._send_quietly(event)
            return True
        return False

    def _end_lost_turns(self, n_known: int | None) -> None:
        """Turns of a gateway's last moment: the one that took over does not know them, and uses their numbers again."""
        for turn in [turn for turn in self._replies if n_known is not None and turn > n_known]:
            self._replies.pop(turn).lose(self._loop.time())
            self.reporter.on_over(turn)

    # --- what arrives ---

    def _on_frame(self, frame: bytes) -> None:
        try:
            event, seq = decode_server(frame)
        except UnknownType:  # a newer server's; the protocol grows by new types
            return
        if seq is not None:
            if seq <= self.last_seq:
                return
            self.last_seq = seq
        now_s = self._loop.time()
        turn: Any = getattr(event, "turn", None)  # Any: a field of most server events, absent from some
        if isinstance(turn, int):
            self._reply_of(turn, event, now_s).add(event, now_s)
        match event:
            case TurnStarted():
                self.reporter.on_started(event.turn, event.audio_out)
            case AudioFrame():
                self.reporter.on_audio(event)
            case ReplyDone():
                self.reporter.on_all_sent(event.turn)
            case Interrupted() | TurnDone():
                self.reporter.on_over(event.turn)
            case PlayoutPaused():
                self.reporter.on_pause(event.turn)
            case PlayoutResumed():
                self.reporter.on_resume(event.turn)
        self._hear(event)
        if event.ref is not None and event.ref in self._pending:
            answer = self._pending[event.ref][1]
            if not answer.done():
                answer.set_result(event)

    def _hear(self, event: ServerEvent) -> None:
        if isinstance(event, SpeechStarted | SpeechEnded | Transcribed | PlayoutPaused | PlayoutResumed):
            self.hearing.add(event)
        elif isinstance(event, TurnStarted) and event.ref is None:
            self.hearing.add(self._replies[event.turn])

    def _reply_of(self, turn: int, event: ServerEvent, now_s: float) -> Reply:
        reply = self._replies.get(turn)
        if reply is None:
            reply = self._replies[turn] = Reply(turn, self._asked_s.get(event.ref or "", now_s))
            while len(self._replies) > N_REPLIES_KEPT:
                del self._replies[next(iter(self._replies))]
        if isinstance(event, TurnStarted):
            reply.item_id = event.item_id
        return reply

    def _end(self, lost: ConversationError) -> None:
        if self._lost is not None:
            return
        self._lost = lost
        self._attached.clear()
        self.hearing.fail(lost)
        for reply in self._replies.values():
            reply.fail(lost)
        for _, answer in self._pending.values():
            if not answer.done():
                answer.set_exception(lost)


def _as_ready(frame: bytes) -> SessionReady:
    event, _ = decode_server(frame)
    if isinstance(event, ErrorRaised):
        raise Refused(event)
    if not isinstance(event, SessionReady):
        raise ConversationError(f"the server began with {event.__struct_config__.tag}; expected session.ready")
    return event


def _lost(closed: ConnectionClosed) -> ConversationLost:
    if closed.rcvd is None:
        return ConversationLost(1006, "")
    return ConversationLost(closed.rcvd.code, closed.rcvd.reason)
