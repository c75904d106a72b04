"""One turn: generate | speak | play in one task group, from the commit to the last sample heard.

The session owns the task that runs `Turn.run` and cancels it at barge-in; it then calls `stop` and lets `settle` report what was
heard. Nothing here touches the history: the turn says what was said and heard, the session writes it down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Literal

from engine.api import Delta, EngineError, Kept, ToolCall
from gateway.errors import InputRefused, StrettoError, from_engine
from gateway.events import ErrorRaised, Heard, Interrupted, InterruptReason, ReplyDone, ToolCalled, TurnDone, TurnStatus, UsageInfo
from gateway.metrics import TurnClock
from gateway.outbox import Outbox
from gateway.speaker import Speaker, SpeakerSettings
from gateway.speech.stream import SpokenSegment
from gateway.turn.asking import Asking
from gateway.turn.books import Books
from gateway.turn.gate import Gate, Hold
from gateway.turn.plan import Owner, Parts, Plan
from gateway.turn.record import Spoken
from gateway.turn.review import Review
from gateway.turn.wording import Wording

Cut = Literal["length", "refused"] | None

log = logging.getLogger("stretto.turn")


class Turn:
    """One reply, as it is made, spoken and heard. A draft (`plan.draft`) is made and held until `commit`, or until it is discarded."""

    def __init__(self, plan: Plan, parts: Parts, outbox: Outbox, owner: Owner) -> None:
        self.plan = plan
        self.number = plan.number
        self.clock = TurnClock(parts.metrics, plan.input, parts.now() if plan.started_s is None else plan.started_s)
        self.is_over = False
        self.is_stopped = False
        self.is_sent = False
        self.is_superseded = False
        self.request_id = f"{plan.session_id}-{plan.number}" + (f".draft{plan.draft}" if plan.draft else "")
        self._parts = parts
        review = None if parts.moderator is None else Review(parts.moderator, plan, self._let_out)
        holds: dict[Hold, bool] = {"draft": bool(plan.draft), "input": review is not None and bool(review.input)}
        self._gate = Gate(outbox, {hold for hold, is_on in holds.items() if is_on})
        self._owner = owner
        self._is_held = self._is_detached = False
        self._speaker = self._make_speaker() if plan.output == "audio" else None
        self._books = Books(plan, parts, self.clock, self._speaker)
        self._wording = Wording(plan, parts, self._gate, self.clock, self._on_segment, self._on_text_sent)
        self._asking = Asking(plan, parts, self.request_id, self._gate, self._on_delta, self._on_calls, self._on_returned)
        self._review = review
        if review is not None and review.holds_segments:
            self._wording.hold = review.hold
        self._refused_from: int | None = None  # where in the raw text the segment begins that may not be heard
        self._items = [(plan.reply_item_id, 0)]
        self._cut_ms: float | None = None

    async def run(self) -> TurnStatus:
        """Make, speak and play the whole reply; returns when the listener has heard it (`completed`) or it failed.

        A cancel stops engine and voice at once; call `stop` and `settle` then.
        """
        try:
            await self._produce()
        except BaseExceptionGroup as group:
            error = _first(group)
            if not isinstance(error, EngineError | StrettoError):
                raise error from None
            if self.is_stopped:  # a cancelled request ends before this task hears of the cancel; whoever stopped it tells its end
                raise asyncio.CancelledError from None
            self._fail(error)
            return "refused" if isinstance(error, InputRefused) else "failed"
        finally:
            self._wording.stop()
        await self._gate.passed()
        self._finish_reply()
        if self._speaker is not None:
            await self._speaker.played_out(self._parts.settings.turn.heard_wait_s)
        status: TurnStatus = "completed" if self._refused_from is None else "refused"
        self._end(status)
        return status

    @property
    def is_draft(self) -> bool:
        """Whether nothing of it may leave yet."""
        return self._gate.is_draft

    @property
    def n_tokens(self) -> int:
        """Tokens the model has made for it so far."""
        return self._asking.n_tokens

    @property
    def left_s(self) -> float | None:
        """When the first sound (or text, where there is no sound) left, on the loop's clock."""
        first_s = self.clock.first_segment_s if self._speaker is None else self.clock.first_audio_s
        return None if first_s is None else self.clock.started_at + first_s

    def answers(self, spoken: Spoken) -> None:
        """It answers this utterance; for the record."""
        self._books.spoken = spoken

    def commit(self, started_s: float) -> None:
        """The draft is the reply: what was held leaves. `started_s`: the end of speech, from which its latencies count."""
        self.clock.started_at = started_s
        self._gate.lift("draft")

    def discard(self) -> None:
        """The draft is not wanted, or the session ends. The caller cancels the task."""
        if not self.is_draft:  # drafts are counted as what they are
            self.clock.used(self._usage())
        self._books.tell("interrupted" if self.is_stopped else "dropped", self._asking, self._wording)
        self.is_stopped = True
        self._parts.model.cancel(self.request_id)
        self._wording.stop()
        self._gate.drop(self.number)

    def hold(self) -> None:
        """The client holds its player, because the user may be interrupting: the clock stands still."""
        self._is_held = True
        self._move_clock()

    def release(self) -> None:
        """It plays on."""
        self._is_held = False
        self._move_clock()

    def stop(self, reason: InterruptReason) -> None:
        """Stop everything of this turn that is still to leave, at once, and tell the client. The caller cancels the task."""
        self.is_stopped = True
        if self._speaker is not None:
            self._speaker.clock.pause(self._parts.now())  # the client empties its player: nothing more of it is heard
        self._parts.model.cancel(self.request_id)
        self._wording.stop()
        self._gate.drop(self.number)
        self._gate.put(Interrupted(turn=self.number, reason=reason))
        self._parts.metrics.interruptions.labels(reason).inc()
        self._books.stopped(reason)

    async def settle(self, status: TurnStatus) -> None:
        """After an early end: wait for the client's last word (bounded), tell what was heard, and end the turn."""
        if self._speaker is not None:
            await self._speaker.settled(self.plan.heard_wait_s)
            self._gate.put(Heard(turn=self.number, heard_ms=self.heard_ms(), heard_text=self.heard_text()))
        self._end(status)

    def report_playout(self, played_ms: object, *, final: bool) -> None:
        """The client says how much it has played."""
        if self._speaker is None or self.is_over:
            return
        now = self._parts.now()
        if not self._speaker.clock.report(played_ms, now, final=final):
            self._parts.metrics.playout_ignored.inc()
            return
        self.clock.playout(now, self._speaker.clock.played_ms(now))
        self._speaker.playout_moved()

    def detached(self) -> None:
        """Nobody reads: pacing stands still, generation goes on."""
        self._is_detached = True
        self._move_clock()

    def attached(self) -> None:
        """Somebody reads again."""
        self._is_detached = False
        self._move_clock()

    def heard_ms(self) -> int:
        """Media milliseconds of this turn that were heard by now."""
        return 0 if self._speaker is None else round(self._speaker.clock.played_ms(self._parts.now()))

    def heard_text(self) -> str:
        """Caption text heard by now."""
        return "" if self._speaker is None else "".join(heard.text for _, heard in self._speaker.heard(self._cut_ms))

    def sounding_text(self) -> str:
        """Caption text of the segments of which sound has left: what a microphone may pick up from the speaker."""
        return "" if self._speaker is None else "".join(t.segment.text for t in self._speaker.tracks if t.start_ms is not None)

    @property
    def n_read(self) -> int:
        """Real tokens of its first prompt; 0 where nobody has said."""
        return self._asking.n_read

    @property
    def is_too_long(self) -> bool:
        """Whether its prompt did not fit into the model's context as it was."""
        return self._asking.is_too_long

    def raw_text(self) -> str:
        """Everything the model wrote."""
        return self._asking.raw_text()

    def items(self) -> list[tuple[str, int, int]]:
        """The reply's items and their stretch of the raw text; one, or more where tools were called in between."""
        ends = [start for _, start in self._items[1:]] + [len(self.raw_text())]
        return [(item_id, start, end) for (item_id, start), end in zip(self._items, ends, strict=True)]

    def heard_raw_end(self) -> int:
        """Where in the raw text the listener stands; for text output, the end of what was sent."""
        if self._speaker is None:
            return len(self.raw_text()) if self._refused_from is None else self._refused_from
        found = self._speaker.heard(self._cut_ms)
        return found[-1][0].segment.raw_offset(found[-1][1].end) if found else 0

    def raw_end(self) -> int:
        """How much of the raw text a reply that was sent whole leaves behind: all, or what `truncate` left."""
        whole = len(self.raw_text()) if self._refused_from is None else self._refused_from
        return whole if self._cut_ms is None else min(whole, self.heard_raw_end())

    def truncate(self, audio_ms: float) -> int | None:
        """The listener stopped at `audio_ms` of the turn's sound; the clamped moment, None where the turn has no sound."""
        if self._speaker is None:
            return None
        self._cut_ms = min(max(0.0, audio_ms), self._speaker.clock.sent_ms)
        return round(self._cut_ms)

    def take_result(self, call_id: str, output: str) -> None:
        """A tool that this turn waits for has returned."""
        self._asking.take_result(call_id, output)

    @property
    def is_heard(self) -> bool:
        """Whether sound of this turn has left."""
        return self.clock.first_audio_s is not None

    def kept_ids(self, raw_end: int) -> Kept | None:
        """Token ids of prompt and reply up to `raw_end`, for the next prompt's prefix."""
        return self._asking.kept_ids(raw_end)

    def _move_clock(self) -> None:
        if self._speaker is None or self.is_stopped:
            return
        if self._is_held or self._is_detached:
            self._speaker.clock.pause(self._parts.now())
        else:
            self._speaker.clock.resume(self._parts.now())
            self._speaker.playout_moved()

    async def _produce(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            name = f"{self.plan.session_id} turn {self.number}"
            generating = tasks.create_task(self._generate(), name=f"{name} generate")
            if self._review is not None:
                tasks.create_task(self._judge(self._review, generating), name=f"{name} judge")
            if self._speaker is not None:
                tasks.create_task(self._speaker.synthesize(), name=f"{name} speak")
                tasks.create_task(self._speaker.play(), name=f"{name} play")

    async def _generate(self) -> None:
        if self.plan.notice:
            self._wording.feed(self._asking.begin_with(self.plan.notice + "\n"))
        if self.plan.say is None:
            await self._asking.run()
        else:
            await self._asking.say(self.plan.say)
        self._books.generated_s = self._parts.now()
        self._wording.flush()
        if self._review is None and not self._wording.n_segments and not self._asking.has_called:  # nobody shall wait in silence
            raise EngineError(f"nothing to say in {self._asking.n_tokens} tokens: reasoning without an end, or marks alone")
        if self._review is not None and self._review.holds_segments:
            self._review.finish()
        elif self._speaker is not None:
            self._speaker.finish()

    async def _judge(self, review: Review, generating: asyncio.Task[None]) -> None:
        """Raises `InputRefused`. A segment that may not be heard ends the reply behind those that may."""
        if review.input:
            if not await review.allows_input():
                raise InputRefused("This was not answered, because of what it says.")
            self._gate.lift("input")
        if not review.holds_segments:
            return
        refused = await review.run()
        if refused is not None:
            self._refused_from = refused.raw_start
            generating.cancel()
            self._parts.model.cancel(self.request_id)
            self._wording.stop()
        if self._speaker is not None:
            self._speaker.finish()

    def _let_out(self, segment: SpokenSegment, decided_s: float) -> None:
        self._wording.let_out(segment, decided_s)

    def _on_delta(self, delta: Delta) -> None:
        if self._books.first_delta_s is None:
            self._books.first_delta_s = self._parts.now()
        if self.plan.say is None and (delta.n_tokens or delta.text):
            self._gate.do(partial(self.clock.first_token, self._parts.now()))
        self._wording.feed(delta)

    def _on_segment(self, segment: SpokenSegment) -> None:
        if self._speaker is not None:
            self._speaker.say(segment)

    def _on_text_sent(self) -> None:
        if self._speaker is None:
            self._gate.do(partial(self._owner.on_progress, self, "first_sent"))

    def _on_calls(self, calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
        self._wording.flush()
        sent = self._owner.on_calls(self, calls)
        for known in sent:
            call = known.call
            self._gate.put(
                ToolCalled(turn=self.number, call_id=call.call_id, name=call.name, arguments=call.arguments, item_id=known.item_id)
            )
        return tuple(known.call for known in sent)

    def _on_returned(self) -> None:
        self._items.append((self._owner.on_reply_continued(self), len(self.raw_text())))
        self._wording.begin_part()
        self._owner.on_progress(self, "tools_returned")

    def _finish_reply(self) -> None:
        self.clock.reply_done(self._parts.now())
        self.is_sent = True
        cut: Cut = "refused" if self._refused_from is not None else "length" if self._asking.finish == "length" else None
        self._gate.put(ReplyDone(turn=self.number, usage=self._usage(), cut=cut))
        self._owner.on_progress(self, "reply_sent")

    def _usage(self) -> UsageInfo:
        usage = self._asking.usage
        return UsageInfo(prompt_tokens=usage.prompt_tokens, cached_tokens=usage.cached_tokens, output_tokens=usage.output_tokens)

    def _fail(self, error: EngineError | StrettoError) -> None:
        if isinstance(error, EngineError):
            self._parts.metrics.engine_errors.labels(error.kind).inc()
            log.warning("language model failed", extra={"turn_id": self.number, "kind": error.kind, "detail": str(error)})
            error = from_engine(error, self.number)
        self._books.error = error.code
        if not self._gate.is_draft:
            self._gate.clear()
        self._gate.put(
            ErrorRaised(
                code=error.code, message=str(error), retryable=error.retryable, retry_after_ms=error.retry_after_ms, turn=self.number
            )
        )
        self._gate.drop(self.number)
        if error.close is not None:
            raise error

    def _end(self, status: TurnStatus) -> None:
        self.is_over = True
        now = self._parts.now()
        self.clock.used(self._usage())
        self.clock.ended(now, status, wants_audio=self._speaker is not None)
        self._gate.put(TurnDone(turn=self.number, status=status, timeline=self.clock.timeline()))
        log.info("turn ended", extra=self._books.record(status, self._asking, self._wording).logged())
        self._books.tell(status, self._asking, self._wording)
        if self._speaker is not None:
            self._speaker.let_go()

    def _make_speaker(self) -> Speaker:
        settings = self._parts.settings
        speaking = SpeakerSettings(
            turn=self.number,
            voice=self.plan.voice,
            language=self.plan.language,
            audio_out=self.plan.audio_out,
            speed=self.plan.speed,
            lead_ms=self.plan.lead_ms,
            first_chunk_s=settings.turn.first_chunk_s,
            stall_s=settings.session.slow_reader_s,
            debug_stamps=settings.server.debug_stamps,
            is_marked=settings.label.marker,
        )
        return Speaker(
            speaking,
            self._parts.voices,
            self._parts.pace,
            self._parts.encoding,
            self._gate.put,
            self._gate.passed,
            self._parts.metrics,
            self.clock,
            self._parts.now,
            lambda: self._owner.on_progress(self, "first_sent"),
        )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors: Sequence[BaseException] = group.exceptions
    inner = errors[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
