"""What a guest hears: the frames of one session over all its connections, the turns in them, and a silent player that reports playout."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from gateway.bench.link import Link
from gateway.client.playout import REPORT_EVERY_S, PlayoutClock, length_ms
from gateway.codecs.native import decode_server, encode_client
from gateway.events import (
    AudioOut,
    ErrorRaised,
    GoingAway,
    Interrupted,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    ReportPlayout,
    SessionReady,
    TurnDone,
    TurnStarted,
)
from gateway.load.tally import Tally

LATE_MS = 5.0  # a gap of that length is a click; less is the resolution of timers
KEPT_TURNS = 8  # older ones are over
_ENDS = frozenset({"heard", "turn.done", "turn.started", "error", "interrupted"})  # may come of a turn that was interrupted
_CLOSES = frozenset({"slow_reader", "going_away", "superseded", "idle"})  # say why a close follows, which is what is counted


class Lost(Exception):
    """The connection is gone. `code`: its close code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class Head(Struct):
    """The fields that a load reads of a hot frame; msgspec skips the rest."""

    type: str
    turn: int = 0
    seq: int = 0
    at_ms: float | None = None
    data: bytes = b""


_T = TypeVar("_T")
_read_head = msgspec.msgpack.Decoder(Head).decode


class Turn:
    """One turn as its guest sees it. `asked_s`: when the question was sent, or its last sound."""

    def __init__(self, number: int, asked_s: float, *, is_spoken: bool) -> None:
        loop = asyncio.get_running_loop()
        self.number, self.asked_s, self.is_spoken = number, asked_s, is_spoken
        self.sounds: asyncio.Future[None] = loop.create_future()  # its first audio arrived, or it is over without
        self.interrupted: asyncio.Future[float] = loop.create_future()
        self.done: asyncio.Future[TurnDone] = loop.create_future()
        self.playout = PlayoutClock()
        self.has_segment = self.has_audio = self.is_all_sent = False
        self.is_disturbed = False  # its guest cut the socket or did not read: what is late then is the guest's doing


class Ear:
    """Of one guest. `tally` gives the one to count in now."""

    def __init__(self, tally: Callable[[], Tally]) -> None:
        self._tally = tally
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._n_connections = 0
        self._audio_out = AudioOut()
        self._turns: dict[int, Turn] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._playing: Turn | None = None
        self._asked: dict[str, tuple[float, asyncio.Future[Turn]]] = {}
        self._spoken_s = 0.0
        self._answer: asyncio.Future[Turn] | None = None
        self.ready: asyncio.Future[SessionReady] = self._loop.create_future()
        self.lost: asyncio.Future[int] = self._loop.create_future()
        self.last_seq = 0
        self.is_going_away = False

    def next_connection(self) -> int:
        """A new connection's number; what still comes of an older one is not listened to any more."""
        self._n_connections += 1
        self._link = None
        self.ready, self.lost = self._loop.create_future(), self._loop.create_future()
        return self._n_connections

    def attach(self, link: Link) -> None:
        """Report playout to this one from now on."""
        self._link = link

    def expect(self, ref: str) -> asyncio.Future[Turn]:
        """The turn that will answer the message of this id, sent now."""
        future: asyncio.Future[Turn] = self._loop.create_future()
        self._asked[ref] = (time.monotonic(), future)
        return future

    def expect_answer(self) -> asyncio.Future[Turn]:
        """The next turn that answers speech."""
        self._answer = self._loop.create_future()
        return self._answer

    def on_spoken(self, ended_s: float) -> None:
        """The guest has finished speaking."""
        self._spoken_s = ended_s

    def forget(self) -> None:
        """The session is another one: what was under way in the old one is lost."""
        for turn in self._turns.values():
            if not turn.done.done():
                self._tally().count("lost")
                turn.done.cancel()
        self._turns.clear()
        self.last_seq = 0
        self.stop_reporting()

    def open_turns(self) -> list[Turn]:
        """Started and not ended."""
        return [turn for turn in self._turns.values() if not turn.done.done()]

    def stop_reporting(self) -> None:
        """No more playout reports of the turn that was playing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_lost(self, connection: int, code: int, reason: str) -> None:
        """A connection is gone; one that was replaced does not matter."""
        if connection == self._n_connections and not self.lost.done():
            self.lost.set_result(code)
            if not self.ready.done():
                self.ready.set_exception(Lost(code))
                self.ready.exception()  # read here: a guest that was ending does not wait for it any more

    def on_frame(self, connection: int, frame: bytes, received_s: float) -> None:
        """Take a frame. Raises what msgspec raises on one that is no frame of ours."""
        if connection != self._n_connections:
            return
        tally, head = self._tally(), _read_head(frame)
        tally.count("frames")
        tally.count("bytes", len(frame))
        if head.seq:
            if head.seq != self.last_seq + 1:
                tally.count("sequence_faults")
            self.last_seq = max(self.last_seq, head.seq)
        turn = self._turns.get(head.turn)
        if turn is not None and turn.interrupted.done() and head.type not in _ENDS:
            tally.count("stale_frames")
            return
        match head.type:
            case "audio" if turn is not None:
                self._on_audio(tally, turn, head, received_s)
            case "segment" if turn is not None:
                self._on_segment(tally, turn, head, received_s)
            case "text.delta" | "segment.audio" | "segment.done":
                pass
            case _:
                self._on_rare(tally, frame, received_s)

    def _on_segment(self, tally: Tally, turn: Turn, head: Head, received_s: float) -> None:
        if head.at_ms is not None and not turn.is_disturbed:
            tally.time("own_segment", received_s * 1000 - head.at_ms)
        if not turn.has_segment:
            turn.has_segment = True
            tally.time("first_segment", (received_s - turn.asked_s) * 1000)

    def _on_audio(self, tally: Tally, turn: Turn, head: Head, received_s: float) -> None:
        tally.count("audio_frames")
        n_ms, playout, is_first = length_ms(head.data, self._audio_out), turn.playout, not turn.has_audio
        own_ms = None if head.at_ms is None or turn.is_disturbed else received_s * 1000 - head.at_ms
        if is_first:
            turn.has_audio = True
            tally.time("first_audio_spoken" if turn.is_spoken else "first_audio", (received_s - turn.asked_s) * 1000)
            if own_ms is not None:
                tally.time("own_first_audio", own_ms)
        elif not turn.is_disturbed and (starved_ms := playout.starved_ms(received_s)) > LATE_MS:
            tally.count("late_frames")
            tally.time("starved", starved_ms)
        playout.add(n_ms, received_s)
        if is_first:
            _resolve(turn.sounds, None)
            self._playing = turn
            self._report()

    def _on_rare(self, tally: Tally, frame: bytes, received_s: float) -> None:
        event, _ = decode_server(frame)
        turn = self._turns.get(getattr(event, "turn", None) or 0)
        match event:
            case SessionReady():
                self._audio_out = event.audio_out
                _resolve(self.ready, event)
            case TurnStarted():
                self._on_started(tally, event, received_s)
            case PlayoutPaused() if turn is not None:
                turn.playout.pause(received_s)
            case PlayoutResumed() if turn is not None:
                turn.playout.resume(received_s)
            case Interrupted() if turn is not None:
                self._on_interrupted(turn, received_s)
            case ReplyDone() if turn is not None:
                turn.is_all_sent = True
            case TurnDone() if turn is not None:
                self._on_done(tally, turn, event)
            case GoingAway():
                self.is_going_away = True
            case ErrorRaised():
                self._on_error(tally, event)

    def _on_started(self, tally: Tally, event: TurnStarted, received_s: float) -> None:
        tally.count("started")
        asked = self._asked.pop(event.ref or "", None)
        is_spoken = asked is None
        turn = Turn(event.turn, asked[0] if asked is not None else self._spoken_s or received_s, is_spoken=is_spoken)
        self._turns[event.turn] = turn
        while len(self._turns) > KEPT_TURNS and next(iter(self._turns.values())).done.done():
            del self._turns[next(iter(self._turns))]
        if asked is not None:
            _resolve(asked[1], turn)
        elif self._answer is not None:
            _resolve(self._answer, turn)

    def _on_interrupted(self, turn: Turn, received_s: float) -> None:
        played_ms = turn.playout.played_ms(received_s)
        turn.playout.pause(received_s)
        if turn is self._playing:
            self.stop_reporting()
        self._send(ReportPlayout(turn=turn.number, played_ms=played_ms, final=True))
        _resolve(turn.interrupted, received_s)

    def _on_done(self, tally: Tally, turn: Turn, event: TurnDone) -> None:
        tally.count(event.status)
        if event.timeline.ttft_ms is not None:
            tally.time("ttft", event.timeline.ttft_ms)
        if turn is self._playing:
            self.stop_reporting()
        _resolve(turn.done, event)
        _resolve(turn.sounds, None)

    def _on_error(self, tally: Tally, event: ErrorRaised) -> None:
        if event.code not in _CLOSES:
            tally.error(event.code)
        if (asked := self._asked.pop(event.ref or "", None)) is not None:
            tally.count("unanswered")
            asked[1].cancel()

    def _report(self) -> None:
        """Report playout now, and again in 250 ms or when all of the reply will have been played."""
        turn = self._playing
        if turn is None:
            return
        self.stop_reporting()
        now_s = time.monotonic()
        played_ms = turn.playout.played_ms(now_s)
        left_s = (turn.playout.total_ms - played_ms) / 1000
        is_final = turn.is_all_sent and left_s <= 0
        self._send(ReportPlayout(turn=turn.number, played_ms=played_ms, final=is_final))
        if not is_final:
            pause_s = min(REPORT_EVERY_S, left_s + 0.001) if turn.is_all_sent else REPORT_EVERY_S
            self._timer = self._loop.call_later(pause_s, self._report)

    def _send(self, event: ReportPlayout) -> None:
        if self._link is not None:
            self._link.send(encode_client(event))


def _resolve(future: asyncio.Future[_T], value: _T) -> None:
    if not future.done():
        future.set_result(value)
