"""The numbered frames of one session on their way to the socket: two lanes, so that control overtakes unsent audio.

Owned by the session, read by one connection at a time. Bounded: audio by the pacing clock and by `slow_reader_s` (a frame that
waited longer means a reader slower than real time), control by `MAX_WAITING` frames and `WAITING_BYTES`. Putting never waits and never
fails: frames are put by timers, by turns that end, by a drain of everybody, and none of these can mend a client that does not read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from gateway.errors import SlowReader, Superseded
from gateway.events import (
    AudioFrame,
    ErrorRaised,
    Heard,
    Interrupted,
    ReplyDone,
    SegmentAudio,
    SegmentDone,
    ServerEvent,
    TurnDone,
    TurnStarted,
)
from gateway.metrics import Metrics

MAX_WAITING = 4096  # control frames; a reply of 512 tokens needs fewer than 1,000
WAITING_BYTES = 2 * 1024 * 1024  # of them; what a client has echoed while it does not read (settings, items) is up to 64 KiB a frame
REPLAY_BYTES = 256 * 1024  # sent frames kept for a resume: over two seconds of pcm16 and all text around it
REPLAY_FRAMES = 512
_FRAME_BYTES = 200  # what a frame weighs besides its content, about

_encoder = msgspec.msgpack.Encoder()

_BEHIND_AUDIO = (AudioFrame, SegmentAudio, SegmentDone, ReplyDone, Heard, TurnDone)
"""Keep their place among a turn's audio; everything else overtakes."""
_ENDS_ITS_TURN = (Interrupted, Heard, TurnDone)
"""All that may be put of a turn after `drop_turn`."""
_OUTLIVES_ITS_TURN = (TurnStarted, ErrorRaised, *_ENDS_ITS_TURN)
"""What stays queued of a dropped turn: answers and reasons."""


class Outbox:
    """Frames of one session; `seq` is given when a frame is taken for sending.

    `on_overflow` is told once, when control frames overflow: from then on (`has_overflowed`) frames are lost, so the session has to end.
    """

    def __init__(self, metrics: Metrics, now: Callable[[], float], slow_reader_s: float) -> None:
        self._metrics = metrics
        self._now = now
        self._slow_reader_s = slow_reader_s
        self._control: deque[tuple[float, ServerEvent, int]] = deque()  # since when it waits, and its weight
        self._audio: deque[tuple[float, ServerEvent, int]] = deque()
        self._again: deque[tuple[int, ServerEvent]] = deque()
        self._sent: deque[tuple[int, ServerEvent, int]] = deque()
        self._sent_bytes = 0
        self._control_bytes = 0
        self._seq = 0
        self._dropped: set[int] = set()
        self._filled = asyncio.Event()
        self.has_overflowed = False
        self.on_overflow: Callable[[SlowReader], None] = lambda error: None

    @property
    def last_seq(self) -> int:
        """Number of the newest frame that was taken for sending."""
        return self._seq

    def go_on_after(self, seq: int) -> None:
        """Number the next frame behind `seq`: earlier ones left from another process and are not here."""
        self._seq = seq

    def put(self, event: ServerEvent) -> None:
        """Queue a frame; one of a dropped turn is forgotten, and so is everything after an overflow."""
        if self.has_overflowed:
            return
        turn = getattr(event, "turn", None)
        if turn in self._dropped:
            if not isinstance(event, _ENDS_ITS_TURN):
                return
            if isinstance(event, TurnDone):
                self._dropped.discard(turn)
        if isinstance(event, ErrorRaised):
            self._metrics.errors.labels(event.code).inc()
        lane = self._audio if isinstance(event, _BEHIND_AUDIO) else self._control
        if len(lane) >= MAX_WAITING or self._control_bytes > WAITING_BYTES:
            self.has_overflowed = True
            got = f"{len(lane)} frames wait for this client ({self._control_bytes} bytes of control)"
            self.on_overflow(SlowReader(f"{got}; expected at most {MAX_WAITING} frames and {WAITING_BYTES} bytes."))
            return
        weight = _weight(event)  # once: three more times each, it was a thirtieth of a gateway's CPU under load
        if lane is self._control:
            self._control_bytes += weight
        lane.append((self._now(), event, weight))
        self._filled.set()

    async def next(self) -> tuple[int, ServerEvent]:
        """The next frame and its `seq`; waits for one.

        A cancel loses nothing: a frame that was taken is kept for a resume. Raises `SlowReader` when it waited too long, `Superseded`
        when it was rewound for a newer reader meanwhile.
        """
        filled = self._filled
        while filled is self._filled:
            if self._again:
                return self._again.popleft()
            lane = self._control or self._audio
            if lane:
                put_at, event, weight = lane[0]
                waited_s = self._now() - put_at
                self._metrics.outbox_wait.observe(waited_s)
                if waited_s > self._slow_reader_s:  # the frame stays: the client may come back for it
                    raise SlowReader(f"A frame waited {waited_s:.1f} s for this client; expected at most {self._slow_reader_s:.0f} s.")
                lane.popleft()
                if lane is self._control:
                    self._control_bytes -= weight
                self._seq += 1
                self._remember(self._seq, event, weight)
                return self._seq, event
            filled.clear()
            await filled.wait()
        raise Superseded("A newer connection reads these frames.")

    def drop_turn(self, turn: int) -> None:
        """Forget every unsent frame of a turn that ended early, and refuse all later ones but its end.

        The fence stands here, because whatever still runs of the turn may finish its step after the interruption.
        """
        self._dropped.add(turn)
        self._control = deque(waiting for waiting in self._control if _may_leave(waiting[1], turn))
        self._control_bytes = sum(weight for _, _, weight in self._control)
        self._audio = deque(waiting for waiting in self._audio if _may_leave(waiting[1], turn))
        self._again = deque((seq, event) for seq, event in self._again if _may_leave(event, turn))

    def rewind(self, last_seq: int) -> bool:
        """Send everything after `last_seq` again, as it was; False when that is not kept any more (or not yet sent).

        Whoever waits in `next` now gets no frame any more: a phone comes back on a new socket long before its old one is found dead,
        and the old writer would take what the new one lacks.
        """
        oldest = self._sent[0][0] if self._sent else self._seq + 1
        if not oldest - 1 <= last_seq <= self._seq:
            return False
        self._again = deque((seq, event) for seq, event, _ in self._sent if seq > last_seq)
        self._filled = asyncio.Event()
        self._filled.set()
        return True

    def restart_waits(self) -> None:
        """A new connection reads from now on: what waited for the old one is not its fault."""
        now = self._now()
        self._control = deque((now, event, weight) for _, event, weight in self._control)
        self._audio = deque((now, event, weight) for _, event, weight in self._audio)

    def let_go(self) -> None:
        """The session is over and nobody comes for its frames: most of the weight of what then waits for the collector."""
        for lane in (self._control, self._audio, self._again, self._sent):
            lane.clear()
        self._control_bytes = self._sent_bytes = 0

    @property
    def kept_bytes(self) -> int:
        """Weight of what was sent and is kept for a resume."""
        return self._sent_bytes

    def waiting(self) -> Iterable[ServerEvent]:
        """Frames not taken yet, for tests and the drain."""
        return [event for _, event, _ in (*self._control, *self._audio)]

    def _remember(self, seq: int, event: ServerEvent, weight: int) -> None:
        self._sent.append((seq, event, weight))
        self._sent_bytes += weight
        while self._sent_bytes > REPLAY_BYTES or len(self._sent) > REPLAY_FRAMES:
            self._sent_bytes -= self._sent.popleft()[2]


def _may_leave(event: ServerEvent, turn: int) -> bool:
    return getattr(event, "turn", None) != turn or isinstance(event, _OUTLIVES_ITS_TURN)


def _weight(event: ServerEvent) -> int:
    return _FRAME_BYTES + (len(event.data) if isinstance(event, AudioFrame) else len(_encoder.encode(event)))
