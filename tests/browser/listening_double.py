"""A gateway that only listens and answers as scripted: the page and the native protocol on one port, in threads.

It hears by loudness: speech begins after 60 ms of it and ends after 400 ms without. The n-th utterance means the n-th of
`meanings`; "" is a cough. A reply is a tone as long as `reply_ms`, sent a second ahead. Speech over it pauses it; words
interrupt it, a cough lets it go on. With `audio_in` None nobody listens.
"""

from __future__ import annotations

import array
import math
import mimetypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from msgspec import Struct
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from gateway.codecs.native import SUBPROTOCOL, decode_client, encode_server
from gateway.events import (
    Ack,
    AppendAudio,
    AudioFrame,
    AudioIn,
    AudioOut,
    Cancel,
    ClearInput,
    ClientEvent,
    CommitInput,
    Heard,
    Interrupted,
    InterruptReason,
    Limits,
    PlayoutPaused,
    PlayoutResumed,
    ReplyDone,
    ReportPlayout,
    SegmentAudio,
    SegmentDecided,
    SegmentDone,
    ServerEvent,
    SessionReady,
    SessionUpdated,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    TextDelta,
    Timeline,
    Transcribed,
    TurnDone,
    TurnStarted,
    UpdateSession,
    UsageInfo,
    VoiceInfo,
)

WEB = Path(__file__).parents[2] / "web"
ANSWER = "I heard you well, and this is a long answer to what you said."
RATE_HZ = 16_000
LOUD = 0.02  # of full scale, root mean square
STARTS_MS, ENDS_MS, WORD_MS = 60.0, 400.0, 200.0
LEAD_S, FRAME_MS = 1.0, 100


class Arrival(Struct, frozen=True):
    """One frame of the microphone: its media time, its bytes, when it came, how loud it is."""

    pts_ms: float
    n_bytes: int
    at_s: float
    loudness: float


class ListeningDouble:
    """What it was sent stands in `arrivals` and `received`; what it said in `sent`."""

    def __init__(self, meanings: Sequence[str], reply_ms: int, *, is_deaf: bool) -> None:
        self.meanings, self.reply_ms, self.is_deaf = list(meanings), reply_ms, is_deaf
        self.port = 0
        self.arrivals: list[Arrival] = []
        self.received: list[ClientEvent] = []
        self.sent: list[ServerEvent] = []
        self.faults: list[Exception] = []

    def of_type(self, kind: type[ClientEvent]) -> list[ClientEvent]:
        """What it was sent of one kind."""
        return [event for event in self.received if isinstance(event, kind)]

    def converse(self, socket: ServerConnection) -> None:
        """One connection; a fault is kept for the test."""
        try:
            _Conversation(self, socket).run()
        except ConnectionClosed:
            pass
        except Exception as error:
            self.faults.append(error)
            raise


class _Conversation:
    def __init__(self, double: ListeningDouble, socket: ServerConnection) -> None:
        self._double, self._socket = double, socket
        self._seq = 0
        self._utterance = 0
        self._is_pushed = False  # push-to-talk: all is speech, and nothing is told of it before the commit
        self._loud_ms = self._quiet_ms = self._now_ms = 0.0
        self._is_speaking = False
        self._turn = 0
        self._reply: _Reply | None = None

    def run(self) -> None:
        while True:
            try:
                event = decode_client(self._socket.recv(timeout=0.02, decode=False))
            except TimeoutError:
                pass
            else:
                self._on_event(event)
            if self._reply is not None:
                self._play(self._reply)

    def _send(self, event: ServerEvent, *, numbered: bool = True) -> None:
        self._seq += numbered
        self._double.sent.append(event)
        self._socket.send(encode_server(event, self._seq if numbered else None))

    def _on_event(self, event: ClientEvent) -> None:
        if isinstance(event, AppendAudio):
            self._hear(event)
            return
        self._double.received.append(event)
        match event:
            case StartSession():
                self._greet()
            case ReportPlayout():
                if event.final:
                    self._end_turn(event)
            case CommitInput():
                self._send(Ack(ref=event.id))
                if self._is_pushed:
                    self._begin()
                self._answer()
            case Cancel():
                self._send(Ack(ref=event.id))
                self._interrupt("cancel")
            case ClearInput():
                self._send(Ack(ref=event.id))
                self._is_speaking = False
            case UpdateSession():
                self._is_pushed = event.turn_detection == "push_to_talk"
                self._is_speaking = False
                self._send(_settings(event))
            case _:
                self._send(Ack(ref=event.id))

    def _greet(self) -> None:
        ready = SessionReady(
            session_id=f"s{id(self)}",
            resume_token="t1",
            resumed=False,
            limits=Limits(lead_ms=1000, idle_s=120, message_bytes=65_536, text_bytes=32_768),
            audio_out=AudioOut(),
            voices=(VoiceInfo(id="amy", languages=("en",)),),
            audio_in=None if self._double.is_deaf else AudioIn(rate_hz=RATE_HZ),
        )
        self._send(ready, numbered=False)

    # --- listening ---

    def _hear(self, event: AppendAudio) -> None:
        samples = array.array("h", event.data)
        loudness = math.sqrt(sum(sample * sample for sample in samples) / max(1, len(samples))) / 32768
        assert event.pts_ms is not None, "the page tells the time of each frame"
        self._double.arrivals.append(Arrival(event.pts_ms, len(event.data), time.monotonic(), loudness))
        n_ms = 1000 * len(samples) / RATE_HZ
        self._now_ms = event.pts_ms + n_ms
        is_loud = loudness > LOUD
        self._quiet_ms = 0.0 if is_loud else self._quiet_ms + n_ms
        self._loud_ms += n_ms if is_loud else 0.0
        if self._is_pushed:
            return
        if not self._is_speaking and self._loud_ms >= STARTS_MS:
            self._begin()
        if self._is_speaking and is_loud:
            self._understand()
        if self._is_speaking and self._quiet_ms >= ENDS_MS:
            self._answer()
        if not self._is_speaking and self._quiet_ms >= 3 * STARTS_MS:
            self._loud_ms = 0.0

    @property
    def _meaning(self) -> str:
        return self._double.meanings[self._utterance - 1] if self._utterance <= len(self._double.meanings) else ""

    def _begin(self) -> None:
        self._is_speaking = True
        self._utterance += 1
        self._send(SpeechStarted(utterance=self._utterance, at_ms=round(self._now_ms - self._loud_ms)))
        if self._reply is not None:
            self._send(PlayoutPaused(turn=self._turn))
            self._reply.paused_s = time.monotonic()

    def _understand(self) -> None:
        n_words = int(self._loud_ms / WORD_MS)
        text = " ".join(self._meaning.split()[:n_words])
        if text and not (isinstance(last := self._double.sent[-1], Transcribed) and last.text == text):
            self._send(Transcribed(utterance=self._utterance, text=text, final=False))
            self._interrupt("speech")

    def _answer(self) -> None:
        """The utterance is over: its final text, and the reply to it."""
        if not self._is_speaking:
            return
        self._is_speaking = False
        self._loud_ms = 0.0
        self._send(SpeechEnded(utterance=self._utterance, at_ms=round(self._now_ms - self._quiet_ms)))
        if not self._meaning:
            self._send(Transcribed(utterance=self._utterance, text="", final=True))
            if self._reply is not None:
                self._send(PlayoutResumed(turn=self._turn))
                self._reply.go_on()
            return
        self._turn += 1
        self._send(Transcribed(utterance=self._utterance, text=self._meaning, final=True, turn=self._turn))
        self._send(TurnStarted(turn=self._turn, item_id=f"u{self._turn}"))
        self._send(TextDelta(turn=self._turn, text=ANSWER, tokens=14))
        self._send(SegmentDecided(turn=self._turn, index=0, text=ANSWER, cut="end"))
        self._send(SegmentAudio(turn=self._turn, index=0, voice="amy", spoken=ANSWER))
        self._reply = _Reply(self._double.reply_ms)

    # --- speaking ---

    def _play(self, reply: _Reply) -> None:
        for frame in reply.due_frames():
            self._send(AudioFrame(turn=self._turn, index=0, pts_ms=reply.sent_ms - FRAME_MS, data=frame))
        if reply.is_sent and not reply.is_told:
            reply.is_told = True
            self._send(SegmentDone(turn=self._turn, index=0, audio_ms=reply.sent_ms, status="ok"))
            self._send(ReplyDone(turn=self._turn, usage=UsageInfo(prompt_tokens=9, cached_tokens=0, output_tokens=14)))

    def _interrupt(self, reason: InterruptReason) -> None:
        if self._reply is not None:
            self._send(Interrupted(turn=self._turn, reason=reason))
            self._reply = None

    def _end_turn(self, report: ReportPlayout) -> None:
        played_ms = int(report.played_ms)
        is_whole = self._reply is not None
        if not is_whole:
            n_heard = len(ANSWER) * played_ms // self._double.reply_ms
            self._send(Heard(turn=report.turn, heard_ms=played_ms, heard_text=ANSWER[:n_heard]))
        self._send(TurnDone(turn=report.turn, status="completed" if is_whole else "interrupted", timeline=Timeline()))
        if report.turn == self._turn:
            self._reply = None


class _Reply:
    """A tone, by the clock."""

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._began_s = time.monotonic()
        self.paused_s: float | None = None
        self.sent_ms = 0
        self.is_told = False

    @property
    def is_sent(self) -> bool:
        return self.sent_ms >= self._length_ms

    def due_frames(self) -> Iterator[bytes]:
        while not self.is_sent and self.paused_s is None and self.sent_ms / 1000 < time.monotonic() - self._began_s + LEAD_S:
            first = 24 * self.sent_ms
            self.sent_ms += FRAME_MS
            yield array.array("h", (round(8000 * math.sin(0.08 * (first + i))) for i in range(24 * FRAME_MS))).tobytes()

    def go_on(self) -> None:
        if self.paused_s is not None:
            self._began_s += time.monotonic() - self.paused_s
            self.paused_s = None


def _settings(wish: UpdateSession) -> SessionUpdated:
    how = wish.turn_detection or "auto"
    return SessionUpdated(ref=wish.id, instructions="", language="en", voice="amy", output="audio", allow_barge_in=True, turn_detection=how)


def _page(_: ServerConnection, request: Request) -> Response | None:
    """The page's files over HTTP; the socket for everything else."""
    if "upgrade" in request.headers.get("connection", "").lower():
        return None
    name = request.path.removeprefix("/web/") if request.path.startswith("/web/") else "index.html"
    path = (WEB / name).resolve()
    if not path.is_relative_to(WEB) or not path.is_file():
        return Response(HTTPStatus.NOT_FOUND, "Not Found", Headers({"Content-Length": "0"}))
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Response(HTTPStatus.OK, "OK", Headers({"Content-Type": kind, "Content-Length": str(len(body)), "Connection": "close"}), body)


@contextmanager
def listening(meanings: Sequence[str] = (), *, reply_ms: int = 6000, is_deaf: bool = False) -> Iterator[ListeningDouble]:
    """A running double. Raises what went wrong in it."""
    double = ListeningDouble(meanings, reply_ms, is_deaf=is_deaf)
    with serve(double.converse, "127.0.0.1", 0, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None, process_request=_page) as server:
        double.port = server.socket.getsockname()[1]
        thread = threading.Thread(target=server.serve_forever, name="listening double", daemon=True)
        thread.start()
        try:
            yield double
        finally:
            server.shutdown()
            thread.join(10)
    if double.faults:
        raise double.faults[0]
