"""One guest: comes, connects, asks and listens, talks over replies, loses its line and comes back, leaves. See `plan` for how often.

Whatever goes wrong is counted where it was met and ends at most this guest's visit; nothing is raised to the load.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import Struct

from gateway.bench.link import Link, open_link
from gateway.bench.scenario import QUESTIONS
from gateway.client import ConnectFailed
from gateway.client.faults import RESUMABLE_CLOSES
from gateway.codecs.native import encode_client
from gateway.events import AppendAudio, AudioIn, Cancel, ClientEvent, Ping, Resume, SendText, SessionReady, StartSession
from gateway.load.ear import Ear, Lost, Turn
from gateway.load.microphone import Microphone, Speech
from gateway.load.plan import Plan, Visit
from gateway.load.tally import Tally

TURN_S = 180.0  # a reply of 512 tokens plays for about two minutes
ANSWER_S = 20.0  # from a question to `turn.started`, or to `interrupted`
OPEN_S = 20.0
BACK_S = (0.1, 1.0)  # how long a lost line takes to come back
OVER_S = (0.2, 1.5)  # into a reply, when a guest talks over it
PING_S = 20.0  # a listener shows that it is there, well under the protocol's idle time
TRIES = 3


class Place(Struct, frozen=True):
    """Where the guests go."""

    url: str
    key: str | None
    tls: ssl.SSLContext | None


class Guest:
    """Runs one visit. `door` bounds how many connect at once; `began_s` is the monotonic time of the load's second 0."""

    def __init__(
        self, visit: Visit, plan: Plan, place: Place, speech: Speech, door: asyncio.Semaphore, tally: Callable[[], Tally], began_s: float
    ) -> None:
        self._visit, self._plan, self._place, self._speech = visit, plan, place, speech
        self._door, self._tally = door, tally
        self._until_s = began_s + visit.until_s
        self._chance = random.Random(plan.seed * 1_000_003 + visit.number)
        self._link: Link | None = None
        self._session: SessionReady | None = None
        self._ear = Ear(tally)
        self._mic: Microphone | None = None
        self._n_asked = 0

    @property
    def n_open(self) -> int:
        """Turns under way."""
        return len(self._ear.open_turns())

    async def stay(self) -> bool:
        """The whole visit, from its arrival to its end or to the gateway's; whether it went as planned."""
        is_content = False
        self._tally().count("visits")
        try:
            await self._connect()
            await self._be_there()
            is_content = True
        except ConnectFailed as error:
            self._tally().count("refused" if error.status is not None else "unreachable")
            self._tally().error(error.code or (f"http_{error.status}" if error.status is not None else "unreachable"))
        except Lost as loss:
            self._on_closed(loss.code)
        finally:
            self._ear.stop_reporting()
            if self._link is not None:
                self._link.close()
        self._tally().count("lost", self.n_open)
        return is_content

    async def _be_there(self) -> None:
        if self._visit.role == "listener":
            await self._listen()
        elif self._visit.role == "spoken":
            self._mic = Microphone(self._speech, self._send_audio)
            async with asyncio.TaskGroup() as tasks:
                mic = tasks.create_task(self._mic.run(), name="microphone")
                with suppress(Lost):  # told below; a group would wrap it
                    await self._talk()
                mic.cancel()
            self._raise_if_lost()
        else:
            await self._talk()

    async def _talk(self) -> None:
        turn: Turn | None = None
        while self._n_asked < self._plan.turns or turn is not None:
            if turn is None:
                await self._pause(self._plan.think_s * self._chance.uniform(0.5, 1.5))
                if self._ear.is_going_away or time.monotonic() >= self._until_s:
                    break
                turn = await self._ask()
            else:
                turn = await self._go_through(turn)
            self._raise_if_lost()
        for turn in self._ear.open_turns():  # one that superseded what was asked
            await self._hear_out(turn)
        await self._wait_for_goodbye()

    async def _ask(self) -> Turn | None:
        """Say or write the next question; None where no turn answers it."""
        self._n_asked += 1
        self._tally().count("asked")
        if self._mic is not None:
            answer = self._ear.expect_answer()
            self._ear.on_spoken(await self._mic.speak())
        else:
            questions = QUESTIONS[self._plan.language]
            text, ref = questions[(self._visit.number + self._n_asked) % len(questions)], f"q{self._n_asked}"
            answer = self._ear.expect(ref)
            self._send(SendText(id=ref, text=text))
        await self._first(answer, ANSWER_S)
        if answer.done():
            return None if answer.cancelled() else answer.result()
        if self._ear.is_going_away:
            self._tally().count("turned_away")
        else:
            self._tally().count("unanswered")
            self._tally().error("no_answer")
        return None

    async def _go_through(self, turn: Turn) -> Turn | None:
        """Hear a reply to its end, or disturb it; the turn of what was said over it."""
        fate = self._chance.random()
        if fate < self._plan.barge_in:
            return await self._barge_in(turn)
        if fate < self._plan.barge_in + self._plan.drop:
            await self._first(turn.sounds, TURN_S)
            await self._pause(self._chance.uniform(0.0, 0.5))
            if not turn.done.done():
                await self._drop(turn)
        elif self._visit.role == "slow":
            await self._read_slowly(turn)
        await self._hear_out(turn)
        return None

    async def _hear_out(self, turn: Turn) -> None:
        """To `turn.done`; a line that breaks meanwhile is dialled again, as a real client does."""
        for _ in range(TRIES):
            await self._first(turn.done, TURN_S)
            if turn.done.done() or not self._ear.lost.done() or self._ear.lost.result() not in RESUMABLE_CLOSES:
                break
            self._tally().error(f"close_{self._ear.lost.result()}")
            await self._come_back()
        if not turn.done.done() and not self._ear.lost.done():
            self._tally().error("turn_timeout")

    async def _barge_in(self, turn: Turn) -> Turn | None:
        """Talk (or write, or press stop) over the reply once it sounds."""
        await self._first(turn.sounds, TURN_S)
        await self._pause(self._chance.uniform(*OVER_S))
        if turn.done.done() or self._ear.lost.done() or self._ear.is_going_away:
            return None
        self._tally().count("barge_ins")
        said_s = time.monotonic()
        if self._mic is None and self._chance.random() < 0.5:
            self._send(Cancel(turn=turn.number))
            following = None
        else:
            following = await self._ask()
        await self._first(turn.interrupted, ANSWER_S)
        if turn.interrupted.done():
            self._tally().time("barge_in", (turn.interrupted.result() - said_s) * 1000)
        elif not turn.done.done() and not self._ear.lost.done():  # else it had ended by itself just then
            self._tally().error("not_interrupted")
        await self._first(turn.done, TURN_S)
        return following

    async def _drop(self, turn: Turn) -> None:
        """The line breaks in mid-reply and comes back."""
        turn.is_disturbed = True
        self._tally().count("drops")
        if self._link is not None:
            self._link.cut()
        await asyncio.sleep(self._chance.uniform(*BACK_S))
        await self._come_back()

    async def _come_back(self) -> None:
        """Resume the session on a new connection; a new session where it is gone. Raises `Lost`, `ConnectFailed`."""
        assert self._session is not None, "a guest that was never in has nothing to resume"
        began_s = time.monotonic()
        resume = Resume(session_id=self._session.session_id, token=self._session.resume_token, last_seq=self._ear.last_seq)
        await self._connect(resume)
        if self._session.resumed:
            self._tally().count("resumed")
            self._tally().time("resume", (time.monotonic() - began_s) * 1000)
        else:
            self._tally().error("not_resumed")
            self._ear.forget()

    async def _read_slowly(self, turn: Turn) -> None:
        """Stop reading in mid-reply, then read on; a gateway may close such a guest."""
        await self._first(turn.sounds, TURN_S)
        turn.is_disturbed = True
        self._tally().count("slow_pauses")
        if self._link is not None:
            self._link.read(False)
            await asyncio.sleep(self._plan.slow_s)
            self._link.read(True)

    async def _listen(self) -> None:
        while time.monotonic() < self._until_s and not self._ear.lost.done():
            await self._pause(min(PING_S, max(0.0, self._until_s - time.monotonic())))
            self._send(Ping(t=time.monotonic()))
        self._raise_if_lost()
        await self._wait_for_goodbye()

    async def _wait_for_goodbye(self) -> None:
        """A gateway that goes away closes its guests itself, each as soon as its turn is over."""
        if self._ear.is_going_away:
            await self._first(self._ear.lost, TURN_S)
            self._raise_if_lost()

    async def _connect(self, resume: Resume | None = None) -> None:
        """A connection with an open session. Raises `ConnectFailed`, `Lost`."""
        audio_in = AudioIn(rate_hz=self._speech.rate_hz) if self._visit.role == "spoken" else None
        start = StartSession(language=self._plan.language, output=self._plan.output, audio_in=audio_in, resume=resume)
        async with self._door:
            began_s = time.monotonic()
            number = self._ear.next_connection()
            on_frame, on_lost = partial(self._ear.on_frame, number), partial(self._ear.on_lost, number)
            try:
                async with asyncio.timeout(OPEN_S):
                    self._link = await open_link(self._place.url, self._place.key, on_frame, on_lost, self._place.tls)
                    self._ear.attach(self._link)
                    self._send(start)
                    self._session = await self._ear.ready
            except TimeoutError as error:
                raise ConnectFailed(f"no session within {OPEN_S:.0f} s", code="connect_timeout") from error
            if resume is None:
                self._tally().time("connect", (time.monotonic() - began_s) * 1000)
                self._tally().count("seated")

    def _on_closed(self, code: int) -> None:
        if code == 4003 and self._visit.role == "slow":
            self._tally().count("slow_closed")
        elif not self._ear.is_going_away:
            self._tally().error(f"close_{code}")

    def _raise_if_lost(self) -> None:
        if self._ear.lost.done():
            raise Lost(self._ear.lost.result())

    async def _first(self, future: asyncio.Future[Any], timeout_s: float) -> None:
        """Wait for it (Any: whatever it gives), for the connection's end, or for the time, whatever comes first."""
        await asyncio.wait([future, self._ear.lost], timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)

    async def _pause(self, seconds: float) -> None:
        """Do nothing for a while; a connection that is lost ends the pause."""
        await asyncio.wait([self._ear.lost], timeout=seconds)

    def _send(self, event: ClientEvent) -> None:
        if self._link is not None:
            self._link.send(encode_client(event))

    def _send_audio(self, pcm: bytes, pts_ms: float) -> None:
        self._send(AppendAudio(data=pcm, pts_ms=pts_ms))
