"""A kept conversation once more: the client's side is sent to a gateway when it was sent then, and what the gateway says is kept likewise.

Playout is not repeated but played: a silent player hears this gateway's sound and reports it, as sessions that report playout do. Ids that
a gateway gives (items, tool calls) are new each time: the n-th of now stands for the n-th of then. Where no sound was kept, the words that
were understood are sent as text, at the moment at which they were understood.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from gateway.capture import Line, fields_of
from gateway.client import ConversationLost, Refused, SimulatedPlayer
from gateway.client.dialing import Dialer
from gateway.client.reporter import PlayoutReporter
from gateway.codecs import native
from gateway.events import (
    CLIENT_EVENTS,
    AudioFrame,
    ClientEvent,
    ErrorRaised,
    Interrupted,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    ServerEvent,
    SessionReady,
    StartSession,
    TurnDone,
    TurnStarted,
)
from gateway.replay.tape import Tape, turns_of

TOOL_S = 15.0  # a result waits so long for its call
QUIET_S = 60.0  # after the last message, for turns that have not ended
GIVEN = ("item_id", "reply_id", "call_id", "after")  # ids in messages
_SPEECH = frozenset({"audio", "commit", "clear", "mute"})


class Ids:
    """Which id of now stands for one of then."""

    def __init__(self, lines: list[Line]) -> None:
        self._then: dict[str, int] = {}
        self._now: list[str] = []
        for line in lines:
            for value in _given(line):
                self._then.setdefault(value, len(self._then))

    def see(self, line: Line) -> None:
        """What this gateway says."""
        self._now += [value for value in _given(line) if value not in self._now]

    def is_known(self, value: str) -> bool:
        """Whether the id of then has one of now, or was never a gateway's."""
        return value not in self._then or self._then[value] < len(self._now)

    def of(self, value: str) -> str:
        """The id to send."""
        return self._now[self._then[value]] if value in self._then and self.is_known(value) else value


class Again:
    """One conversation that is had again. `run` returns what this gateway said."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._sends_speech = tape.header.audio
        self._ids = Ids(tape.lines)
        self._said: list[Line] = []
        self._moved = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._player = SimulatedPlayer(self._loop.time)
        self._reports = tape.header.start.get("playout") != "clock"

    async def run(self, dialer: Dialer) -> list[Line]:
        """Raises `ConnectFailed`, `Refused`, `ConversationLost`."""
        async with await dialer.dial() as socket:
            self._reporter = PlayoutReporter(self._player, self._sender(socket), self._loop.time)
            await socket.send(native.encode_client(self._start()))
            await self._ready(socket)
            self._began_s = self._loop.time()
            try:
                await self._converse(socket)
            except BaseExceptionGroup as group:
                lost = next((each for each in group.exceptions if isinstance(each, ConnectionClosed)), None)
                if lost is None:
                    raise
                raise ConversationLost(lost.rcvd.code if lost.rcvd else 1006, lost.rcvd.reason if lost.rcvd else "") from lost
        return self._said

    async def _converse(self, socket: ClientConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._listen(socket), name="listen")]
            if self._reports:
                beside.append(tasks.create_task(self._reporter.run(), name="report playout"))
            await self._speak(socket)
            await self._until_quiet()
            for task in beside:
                task.cancel()

    def _start(self) -> StartSession:
        fields = {name: value for name, value in self._tape.header.start.items() if name not in ("capture", "id", "user")}
        if not self._sends_speech:
            fields.pop("audio_in", None)
        return msgspec.convert(fields, StartSession)

    async def _ready(self, socket: ClientConnection) -> None:
        while True:
            event = await self._receive(socket)
            if isinstance(event, SessionReady):
                self._reporter.audio_out = event.audio_out
                return
            if isinstance(event, ErrorRaised):
                raise Refused(event)

    async def _speak(self, socket: ClientConnection) -> None:
        for line in self._tape.lines:
            event = self._event(line)
            if event is None:
                continue
            await asyncio.sleep(self._began_s + line.at_ms / 1000 - self._loop.time())
            await self._send(socket, await self._with_ids_of_now(event))

    def _event(self, line: Line) -> ClientEvent | None:
        """What the client sends for this line; None for what is not its to send."""
        kind, body = line.body["type"], line.body
        if line.by == "server" and kind == "transcript" and not self._sends_speech and body.get("final") and body.get("turn") is not None:
            return CLIENT_EVENTS["text"](text=body["text"])  # type: ignore[call-arg]  # found by its name
        if line.by != "client" or kind == "session.start" or (kind in _SPEECH and not self._sends_speech):
            return None
        if kind == "playout" and self._reports:
            return None
        return msgspec.convert(body, CLIENT_EVENTS[kind])

    async def _with_ids_of_now(self, event: ClientEvent) -> ClientEvent:
        """A tool's result waits until its call has come."""
        given = {name: value for name in GIVEN if isinstance(value := getattr(event, name, None), str)}
        try:
            async with asyncio.timeout(TOOL_S):
                while not all(map(self._ids.is_known, given.values())):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            pass  # this time it was not called; the gateway says so
        return msgspec.structs.replace(event, **{name: self._ids.of(value) for name, value in given.items()}) if given else event

    async def _listen(self, socket: ClientConnection) -> None:
        while True:
            self._react(await self._receive(socket))
            self._moved.set()

    def _react(self, event: ServerEvent) -> None:
        match event:
            case TurnStarted():
                self._reporter.on_started(event.turn, event.audio_out)
            case AudioFrame():
                self._reporter.on_audio(event)
            case ReplyDone():
                self._reporter.on_all_sent(event.turn)
            case PlayoutPaused():
                self._reporter.on_pause(event.turn)
            case PlayoutResumed():
                self._reporter.on_resume(event.turn)
            case Interrupted() | TurnDone():
                self._reporter.on_over(event.turn)

    async def _until_quiet(self) -> None:
        """Until every turn that has begun is over, and as long as the conversation went on then."""
        ended_s = max((line.at_ms for line in self._tape.lines), default=0.0) / 1000
        await asyncio.sleep(self._began_s + ended_s - self._loop.time())
        try:
            async with asyncio.timeout(QUIET_S):
                while any(not turn.status for turn in turns_of(self._said).values()):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            pass  # the table shows which are open

    async def _receive(self, socket: ClientConnection) -> ServerEvent:
        frame = await socket.recv()
        event, seq = native.decode_server(frame if isinstance(frame, bytes) else frame.encode())
        body: dict[str, Any] = fields_of(event) | ({} if seq is None else {"seq": seq})  # Any: a message's fields
        at_s = self._loop.time() - getattr(self, "_began_s", self._loop.time())
        line = Line(round(at_s * 1000, 1), "server", msgspec.to_builtins(body, builtin_types=(bytes,)))
        self._said.append(line)
        self._ids.see(line)
        return event

    async def _send(self, socket: ClientConnection, event: ClientEvent) -> None:
        await socket.send(native.encode_client(event))

    def _sender(self, socket: ClientConnection) -> Any:  # Any: what the reporter awaits
        return lambda event: self._send(socket, event)


def _given(line: Line) -> list[str]:
    if line.by != "server":
        return []
    return [value for name in GIVEN if isinstance(value := line.body.get(name), str)]
