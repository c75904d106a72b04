"""One socket: a reader, a writer and a watch over one session. The codec is the path's; the session does not know it.

The reader never waits on a turn, because uvicorn reads pongs only while the application receives. Whatever ends the connection is a
`StrettoError` with a close code, or the peer's own going; both end up in `serve`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from msgspec import structs
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway import capture
from gateway.admission import Mistakes, Rate
from gateway.auth import FULL_RIGHTS, Rights
from gateway.capture import Capture, Captures
from gateway.codecs import Codec, Frame
from gateway.config import SessionSettings
from gateway.errors import (
    BadMessage,
    ClientError,
    HandshakeTimeout,
    Idle,
    NotStarted,
    RateLimited,
    SlowReader,
    StrettoError,
    TooManyErrors,
    UnknownType,
    WrongFrameKind,
)
from gateway.events import AppendAudio, ClientEvent, Ping, Pong, ServerEvent, StartSession
from gateway.metrics import Metrics
from gateway.session import Attachment, Session, error_frame
from gateway.sessions import Crashed, HeldElsewhere, Sessions

CLOSE_S = 2.0  # a peer that does not read must not hold up the close
OVER = frozenset({1000, 1002, 1003, 1007, 1009})  # the client's own goodbye, and frames that are no WebSocket's: nobody comes back

log = logging.getLogger("stretto.connection")


class _Gone(Exception):
    """The peer closed or vanished. `is_over`: it said that the conversation is over."""

    def __init__(self, *, is_over: bool) -> None:
        super().__init__("the peer is gone")
        self.is_over = is_over


class Connection:
    """Serves one accepted socket until it ends. `is_back`: it was let in beyond the bounds of newcomers, for an open session."""

    def __init__(
        self,
        socket: WebSocket,
        codec: Codec,
        sessions: Sessions,
        settings: SessionSettings,
        metrics: Metrics,
        now: Callable[[], float],
        rights: Rights = FULL_RIGHTS,
        traceparent: str = "",
        captures: Captures | None = None,
        *,
        is_back: bool = False,
    ) -> None:
        self._socket = socket
        self._codec = codec
        self._rights = rights
        self._is_back = is_back
        self._traceparent = traceparent
        self._captures = captures
        self._capture: Capture | None = None
        self._sessions = sessions
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._rate = Rate(settings.messages_per_s, now())
        self._speech_rate = Rate(settings.messages_per_s, now())
        self._mistakes = Mistakes()
        self._received_at = now()
        self._sends_since: float | None = None

    async def serve(self) -> None:
        """Hold the conversation. A cancel closes the socket; the session is kept for a resume."""
        try:
            session, attachment = await self._handshake()
        except _Gone:
            return
        except StrettoError as error:
            await self._close(error)
            return
        except HeldElsewhere as held:
            self._metrics.process.carried.inc()
            with self._sessions.admission.carrying():
                await held.carry(self._socket, self._settings.slow_reader_s)
            return
        is_over = False
        try:
            await self._converse(session, attachment)
        except BaseExceptionGroup as group:
            reason = _reason(group, session.session_id)
            if isinstance(reason, _Gone):
                is_over = reason.is_over
            else:
                is_over = isinstance(reason, Idle | Crashed | TooManyErrors | WrongFrameKind)
                await self._close(reason)
        finally:
            if self._capture is not None:
                self._capture.note("gone")
            self._sessions.lose(session, attachment, is_over=is_over or not self._codec.can_resume)

    async def _converse(self, session: Session, attachment: Attachment) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read(session, attachment), name=f"{session.session_id} read")
            tasks.create_task(self._write(session, attachment), name=f"{session.session_id} write")
            tasks.create_task(self._watch(session, attachment), name=f"{session.session_id} watch")

    async def _handshake(self) -> tuple[Session, Attachment]:
        """Open the session: as the codec says, or when a `session.start` is good.

        Raises `HandshakeTimeout`, `TooManyErrors`, `_Gone`, and refusals with a close code.
        """
        try:
            async with asyncio.timeout(self._settings.handshake_s):
                if self._codec.opening is not None:
                    return await self._open(self._codec.opening)
                while True:
                    for event in await self._receive():
                        opened = await self._before_start(event)
                        if opened is not None:
                            return opened
        except TimeoutError as error:
            raise HandshakeTimeout(f"No session.start within {self._settings.handshake_s:.0f} s.") from error

    async def _before_start(self, event: ClientEvent) -> tuple[Session, Attachment] | None:
        """Act on a message before the session is open; what can be put right is answered, and the socket waits for better."""
        try:
            if isinstance(event, Ping):
                await self._send(Pong(ref=event.id, t=event.t), None)
                return None
            if not isinstance(event, StartSession):
                raise NotStarted(f"Got `{event.__struct_config__.tag}`; expected session.start first.")
            return await self._open(event)
        except StrettoError as error:
            if error.close is not None:
                raise
            await self._tell(error, event.id)
            return None

    async def _open(self, start: StartSession) -> tuple[Session, Attachment]:
        is_kept = capture.is_wanted(self._captures, start, self._rights)
        session, attachment, ready = await self._sessions.open(start, self._rights, may_move=self._codec.can_resume, is_back=self._is_back)
        attachment.traceparent = self._traceparent
        try:
            if is_kept and self._captures is not None:
                ready = structs.replace(ready, captured=True)
                self._capture = self._captures.of(start, ready, self._rights)
            wish = self._codec.configure(session.profile.described(), ready.voices)
            if wish is not None:
                session.configure(wish)
            await self._send_frames(self._codec.welcome(structs.replace(ready, ref=start.id), session.profile.described()))
        except BaseException:
            is_over = not (ready.resumed and self._codec.can_resume)  # a new session whose token never left cannot be resumed
            self._sessions.lose(session, attachment, is_over=is_over)
            raise
        return session, attachment

    async def _read(self, session: Session, attachment: Attachment) -> None:
        """Hand the client's events to its session, while this connection serves it: what comes later here, its client sends again there."""
        while not attachment.ended.done():
            for event in await self._receive(session):
                if attachment.ended.done():
                    return
                if self._capture is not None:
                    self._capture.received(event)
                if isinstance(event, AppendAudio) and session.decoding.is_remote:
                    await self._hear(session, event)
                else:
                    session.receive(event)

    async def _hear(self, session: Session, event: AppendAudio) -> None:
        """Speech that has to be decoded first; what comes behind it waits in the socket."""
        try:
            samples = await session.decoding.decoded(event)
        except ClientError as error:
            session.outbox.put(error_frame(error, event.id))
        else:
            session.receive(samples)

    async def _receive(self, session: Session | None = None) -> list[ClientEvent]:
        """The next message's events; none where it was refused with an `error`."""
        try:
            message = await self._socket.receive()
        except (WebSocketDisconnect, RuntimeError) as error:
            raise _Gone(is_over=False) from error
        if message["type"] == "websocket.disconnect":
            raise _Gone(is_over=message.get("code") in OVER)
        now = self._received_at = self._now()
        frame = message.get("bytes")
        if frame is None:
            frame = message.get("text", "")
        try:
            if len(frame) > self._codec.message_bytes:
                raise BadMessage(f"The message has {len(frame)} bytes; expected at most {self._codec.message_bytes}.")
            events = self._codec.decode(frame)
            is_speech = bool(events) and all(isinstance(event, AppendAudio) for event in events)
            if not (self._speech_rate if is_speech else self._rate).take(now):
                if self._codec.is_strict and not is_speech:  # speech piles up in a network that stalls, and is then taken at the rate
                    fault = f"More than {self._settings.messages_per_s} messages a second; this one was dropped."
                    raise RateLimited(fault, ref=events[0].id if events else None, retry_after_ms=1000)
                await asyncio.sleep(1 / self._settings.messages_per_s)
        except ClientError as error:
            await self._refuse(error, session, now)
            return []
        return events

    async def _refuse(self, error: ClientError, session: Session | None, now: float) -> None:
        if error.close is not None:
            raise error
        if session is None:
            await self._tell(error)
        else:
            session.outbox.put(error_frame(error))
        is_mistake = isinstance(error, BadMessage | UnknownType | RateLimited)
        if self._codec.is_strict and is_mistake and self._mistakes.add(now):
            raise TooManyErrors("Ten messages in a minute could not be taken.")

    async def _write(self, session: Session, attachment: Attachment) -> None:
        """Send the session's frames while this connection serves it; the frames of a newer one are not ours to take."""
        while not attachment.ended.done():
            seq, event = await session.outbox.next()
            if self._capture is not None:
                self._capture.sent(event, seq)
            self._sends_since = self._now()
            await self._send(event, seq)
            self._sends_since = None

    async def _tell(self, error: StrettoError, ref: str | None = None) -> None:
        """An `error` frame beside the session's numbered ones."""
        self._metrics.errors.labels(error.code).inc()
        await self._send(error_frame(error, ref), None)

    async def _send(self, event: ServerEvent, seq: int | None) -> None:
        await self._send_frames(self._codec.encode(event, seq))

    async def _send_frames(self, frames: list[Frame]) -> None:
        """Waits as long as the peer does not read; its callers' own deadlines and `_watch` bound that."""
        try:
            for frame in frames:
                await self._socket.send({"type": "websocket.send", "text" if isinstance(frame, str) else "bytes": frame})
        except (WebSocketDisconnect, RuntimeError, OSError) as error:
            raise _Gone(is_over=False) from error

    async def _watch(self, session: Session, attachment: Attachment) -> None:
        """End the connection when the session says so, when nothing came for too long while nothing was said, or when a send stands still.

        One watch for all sends: a timer for each frame cost a twelfth of the gateway's CPU.
        """
        idle_s, slow_s = self._codec.idle_s, self._settings.slow_reader_s
        while True:
            now = self._now()
            sends_s = 0.0 if self._sends_since is None else now - self._sends_since
            left_s = min(idle_s - (now - self._received_at), slow_s - sends_s)
            done, _ = await asyncio.wait([attachment.ended], timeout=max(left_s, 0.05))
            if done:
                raise attachment.ended.result()
            if self._sends_since is not None and self._now() - self._sends_since >= slow_s:
                raise SlowReader(f"The socket took nothing for {slow_s:.0f} s.")
            if session.is_busy:
                self._received_at = self._now()
            elif self._now() - self._received_at >= idle_s:
                raise Idle(f"Nothing came for {idle_s:.0f} s.")

    async def _close(self, error: StrettoError) -> None:
        """Say why, then close with the error's code; gives up quietly on a peer that does not read."""
        if isinstance(error, SlowReader):
            self._metrics.slow_readers.inc()
        try:
            async with asyncio.timeout(CLOSE_S):
                if not isinstance(error, SlowReader):
                    await self._tell(error)
                await self._socket.close(self._codec.close_code(error), error.code)
        except (TimeoutError, _Gone, WebSocketDisconnect, RuntimeError, OSError):  # it has gone meanwhile
            pass


def _reason(group: BaseExceptionGroup[BaseException], session_id: str) -> _Gone | StrettoError:
    """Why a connection ended: the peer's going first, then our own reasons; anything else is a bug of ours."""
    reasons = _leaves(group)
    for kind in (_Gone, StrettoError):
        for reason in reasons:
            if isinstance(reason, kind):
                return reason
    log.error("connection failed", exc_info=group, extra={"session_id": session_id})
    return Crashed("The gateway failed on this connection.")


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    return [leaf for inner in group.exceptions for leaf in (_leaves(inner) if isinstance(inner, BaseExceptionGroup) else [inner])]
