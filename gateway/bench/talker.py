"""One scripted conversation: asks, marks when things arrive, plays in silence and reports playout as a real client would."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from gateway.bench.link import Link, open_link
from gateway.bench.measuring import Tally
from gateway.bench.scenario import Line
from gateway.client import ConversationError, ConversationLost, PlayoutClock, Refused
from gateway.client.playout import REPORT_EVERY_S, length_ms
from gateway.codecs.native import decode_server, encode_client
from gateway.events import AudioOut, ErrorRaised, ReplyDone, ReportPlayout, SendText, SessionReady, StartSession, TurnDone

TURN_S = 120.0  # a reply of 512 tokens plays for about two minutes
HOLD_MARGIN_MS = 150.0  # a frame this close to the allowed lead may have been held back by pacing: not the gateway's own share


class Head(Struct):
    """The fields that a bench reads of a hot frame; msgspec skips the rest."""

    type: str
    turn: int = 0
    at_ms: float | None = None
    data: bytes = b""


_read_head = msgspec.msgpack.Decoder(Head).decode


class Talker:
    """One client. `open`, then `talk`, then `close`; `is_sampled` also counts what its frames would weigh as JSON."""

    def __init__(
        self, url: str, key: str | None, start: StartSession, tally: Tally, *, is_sampled: bool = False, tls: ssl.SSLContext | None = None
    ) -> None:
        self._url, self._key, self._start, self._tls = url, key, start, tls
        self._tally = tally
        self._is_sampled = is_sampled
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._ready: asyncio.Future[SessionReady] = self._loop.create_future()
        self._done: asyncio.Future[TurnDone] | None = None
        self._turn = 0
        self._asked_s = 0.0
        self._has_segment = False
        self._is_all_sent = False
        self._last_text_s = 0.0
        self._n_output_tokens = 0
        self._playout: PlayoutClock | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lead_ms = 0.0
        self.busy_s = 0.0  # in turns
        self._audio_out = AudioOut()

    async def open(self) -> None:
        """Connect and start the session. Raises `ConnectFailed`, `Refused`, `ConversationLost`."""
        self._link = await open_link(self._url, self._key, self._on_frame, self._on_lost, self._tls)
        self._link.send(encode_client(self._start))
        ready = await self._ready
        self._lead_ms = ready.limits.lead_ms
        self._audio_out = ready.audio_out

    async def talk(self, lines: Iterable[Line], until_s: float) -> None:
        """Say the lines; begins no turn after `until_s` (monotonic). A lost connection is counted and ends the talk."""
        for line in lines:
            await asyncio.sleep(line.think_s)
            if time.monotonic() >= until_s:
                return
            try:
                async with asyncio.timeout(TURN_S):
                    await self._take_turn(line.text)
            except TimeoutError:
                self._tally.add_fault(f"no turn.done within {TURN_S:.0f} s")
                return
            except ConversationError as error:
                self._tally.add_fault(str(error))
                return

    def close(self) -> None:
        """Say goodbye and stop reporting."""
        self._stop_reporting()
        if self._link is not None:
            self._tally.wire_bytes += self._link.n_bytes
            self._link.close()

    async def _take_turn(self, text: str) -> None:
        assert self._link is not None, "open() comes first"
        self._done = self._loop.create_future()
        self._has_segment = self._is_all_sent = False
        self._n_output_tokens = 0
        self._playout = None
        self._asked_s = time.monotonic()
        self._link.send(encode_client(SendText(text=text)))
        try:
            done = await self._done
        finally:
            self.busy_s += time.monotonic() - self._asked_s
        self._tally.n_turns += 1
        if done.timeline.ttft_ms is not None:
            self._tally.ttft_ms.append(done.timeline.ttft_ms)
            self._count_speed(done.timeline.ttft_ms)
        if done.status != "completed":
            self._tally.add_fault(f"turn {done.status}")

    def _count_speed(self, ttft_ms: float) -> None:
        """Tokens a second between the first and the last text of the reply that ended."""
        seconds = self._last_text_s - self._asked_s - ttft_ms / 1000
        if self._n_output_tokens > 1 and seconds > 0:
            self._tally.tokens_per_s.append((self._n_output_tokens - 1) / seconds)

    def _on_frame(self, frame: bytes, received_s: float) -> None:
        self._tally.n_frames += 1
        head = _read_head(frame)
        match head.type:
            case "audio":
                self._on_audio(head, received_s)
            case "segment":
                self._on_segment(head, received_s)
            case "text.delta":
                self._last_text_s = received_s
            case "reply.done":
                self._is_all_sent = True
                self._on_rare(frame)
            case "session.ready" | "turn.done" | "error":
                self._on_rare(frame)
        if self._is_sampled:
            self._weigh(frame)

    def _on_segment(self, head: Head, received_s: float) -> None:
        self._turn = head.turn
        if head.at_ms is not None:
            self._tally.own_segment_ms.append(received_s * 1000 - head.at_ms)
        if not self._has_segment:
            self._has_segment = True
            self._tally.first_segment_ms.append((received_s - self._asked_s) * 1000)

    def _on_audio(self, head: Head, received_s: float) -> None:
        self._tally.n_audio_frames += 1
        n_ms = length_ms(head.data, self._audio_out)
        is_first = self._playout is None
        playout = self._playout = self._playout or PlayoutClock()
        ahead_ms = playout.total_ms + n_ms - playout.played_ms(received_s)
        own_ms = None if head.at_ms is None else received_s * 1000 - head.at_ms
        if is_first:
            self._turn = head.turn
            self._tally.first_audio_ms.append((received_s - self._asked_s) * 1000)
            if own_ms is not None:
                self._tally.own_first_audio_ms.append(own_ms)
        else:
            self._tally.late_audio_ms.append(playout.starved_ms(received_s))
        if own_ms is not None and ahead_ms < self._lead_ms - HOLD_MARGIN_MS:
            self._tally.own_audio_ms.append(own_ms)
        playout.add(n_ms, received_s)
        if is_first:
            self._report()

    def _on_rare(self, frame: bytes) -> None:
        event, _ = decode_server(frame)
        match event:
            case SessionReady() if not self._ready.done():
                self._ready.set_result(event)
            case ReplyDone():
                self._n_output_tokens = event.usage.output_tokens
                self._tally.n_prompt_tokens += event.usage.prompt_tokens
                self._tally.n_cached_tokens += event.usage.cached_tokens
                self._tally.n_output_tokens += event.usage.output_tokens
            case TurnDone() if self._done is not None and not self._done.done():
                self._stop_reporting()
                self._done.set_result(event)
            case ErrorRaised():
                self._fail(Refused(event), is_fatal=event.turn is None)

    def _on_lost(self, code: int, reason: str) -> None:
        self._stop_reporting()
        self._fail(ConversationLost(code, reason), is_fatal=True)

    def _fail(self, error: ConversationError, *, is_fatal: bool) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
        elif is_fatal and self._done is not None and not self._done.done():
            self._done.set_exception(error)
        elif not is_fatal:
            self._tally.add_fault(str(error))

    def _report(self) -> None:
        """Report playout now, and again in 250 ms or when all of the reply will have been played."""
        if self._link is None or self._playout is None:
            return
        now_s = time.monotonic()
        played_ms = self._playout.played_ms(now_s)
        left_s = (self._playout.total_ms - played_ms) / 1000
        is_final = self._is_all_sent and left_s <= 0
        self._link.send(encode_client(ReportPlayout(turn=self._turn, played_ms=played_ms, final=is_final)))
        self._timer = None
        if not is_final:
            pause_s = min(REPORT_EVERY_S, left_s + 0.001) if self._is_all_sent else REPORT_EVERY_S
            self._timer = self._loop.call_later(pause_s, self._report)

    def _stop_reporting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _weigh(self, frame: bytes) -> None:
        event, seq = decode_server(frame)
        fields = {name: value for name in event.__struct_fields__ if (value := getattr(event, name)) is not None}
        body = {"type": event.__struct_config__.tag, **fields, "seq": seq}
        self._tally.wire_sample_bytes += len(frame)
        self._tally.json_sample_bytes += len(msgspec.json.encode(body))  # bytes become base64, as everywhere in JSON
