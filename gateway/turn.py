"""One turn: generate | speak | play in one task group, from the commit to the last sample heard.

The session owns the task that runs `Turn.run` and cancels it at barge-in; it then calls `stop` and lets `settle` report what was
heard. Nothing here touches the history: the turn says what was said and heard, the session writes it down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Literal

from msgspec import Struct

from engine.api import Delta, EngineError, EngineStalled, Generation, Kept, LanguageModel, Message, Prompt, Sampling, Synthesizer, Usage
from gateway.config import Settings
from gateway.errors import EngineFailed, StrettoError, from_engine
from gateway.events import (
    AudioOut,
    ErrorRaised,
    Heard,
    Interrupted,
    InterruptReason,
    ReplyDone,
    SegmentDecided,
    TextDelta,
    TurnDone,
    TurnStatus,
    UsageInfo,
)
from gateway.metrics import Metrics, TurnClock
from gateway.outbox import Outbox
from gateway.speaker import Speaker, SpeakerSettings
from gateway.speech.markup import MarkupRules
from gateway.speech.segmenter import SegmentOptions
from gateway.speech.stream import Output, SpeechStream, SpokenSegment

log = logging.getLogger("stretto.turn")

Progress = Literal["first_sent", "reply_sent"]


class Parts(Struct, frozen=True, kw_only=True):
    """What every turn of this process works with; `now` is the loop's clock in seconds, `rules` what marks the model may write."""

    model: LanguageModel
    voices: Synthesizer
    metrics: Metrics
    settings: Settings
    rules: MarkupRules
    now: Callable[[], float]


class Plan(Struct, frozen=True, kw_only=True):
    """What this turn is to do. `say`: speak this text instead of asking the model with `messages`."""

    number: int
    session_id: str
    reply_item_id: str
    language: str
    voice: str
    output: Literal["audio", "text"]
    audio_out: AudioOut
    messages: tuple[Message, ...] = ()
    kept: Kept | None = None
    say: str | None = None


class Turn:
    """One reply, as it is made, spoken and heard."""

    def __init__(self, plan: Plan, parts: Parts, outbox: Outbox, on_progress: Callable[[Turn, Progress], None]) -> None:
        self.plan = plan
        self.number = plan.number
        self.clock = TurnClock(parts.metrics, "text", parts.now())
        self.is_over = False
        self.is_stopped = False
        self.request_id = f"{plan.session_id}-{plan.number}"
        self._parts = parts
        self._outbox = outbox
        self._on_progress = on_progress
        options = SegmentOptions(early_first=parts.settings.speech.early_first_segment)
        self._stream = SpeechStream(language=plan.language, rules=parts.rules, options=options)
        self._speaker = self._make_speaker() if plan.output == "audio" else None
        self._prompt: Prompt | None = None
        self._deltas: list[Delta] = []
        self._captions: list[str] = []
        self._caption_tokens = 0
        self._caption_at = float("-inf")
        self._caption_timer: asyncio.TimerHandle | None = None
        self._pending_timer: asyncio.TimerHandle | None = None
        self._n_segments = 0
        self._usage = Usage()

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
            self._fail(error)
            return "failed"
        finally:
            self._stop_timers()
        self._finish_reply()
        if self._speaker is not None:
            await self._speaker.played_out(self._parts.settings.turn.heard_wait_s)
        self._end("completed")
        return "completed"

    def stop(self, reason: InterruptReason) -> None:
        """Stop everything of this turn that is still to leave, at once, and tell the client. The caller cancels the task."""
        self.is_stopped = True
        self._parts.model.cancel(self.request_id)
        self._stop_timers()
        self._outbox.drop_turn(self.number)
        self._outbox.put(Interrupted(turn=self.number, reason=reason))
        self._parts.metrics.interruptions.labels(reason).inc()

    async def settle(self, status: TurnStatus) -> None:
        """After an early end: wait for the client's last word (bounded), tell what was heard, and end the turn."""
        if self._speaker is not None:
            await self._speaker.settled(self._parts.settings.turn.heard_wait_s)
            self._outbox.put(Heard(turn=self.number, heard_ms=self.heard_ms(), heard_text=self.heard_text()))
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
        if self._speaker is not None:
            self._speaker.clock.pause(self._parts.now())

    def attached(self) -> None:
        """Somebody reads again."""
        if self._speaker is not None:
            self._speaker.clock.resume(self._parts.now())
            self._speaker.playout_moved()

    def heard_ms(self) -> int:
        """Media milliseconds of this turn that were heard by now."""
        return 0 if self._speaker is None else round(self._speaker.clock.played_ms(self._parts.now()))

    def heard_text(self) -> str:
        """Caption text heard by now."""
        return "" if self._speaker is None else "".join(heard.text for _, heard in self._speaker.heard())

    def raw_text(self) -> str:
        """Everything the model wrote."""
        return "".join(delta.text for delta in self._deltas)

    def heard_raw_end(self) -> int:
        """Where in the raw text the listener stands; for text output, the end of what was sent."""
        if self._speaker is None:
            return len(self.raw_text())
        found = self._speaker.heard()
        return found[-1][0].segment.raw_offset(found[-1][1].end) if found else 0

    def kept_ids(self, raw_end: int) -> Kept | None:
        """Token ids of prompt and reply up to `raw_end` (whole deltas), for the next prompt's prefix."""
        if self._prompt is None or not self._prompt.ids:
            return None
        ids, text, end = list(self._prompt.ids), self._prompt.text, 0
        for delta in self._deltas:
            end += len(delta.text)
            if end > raw_end or (delta.text and not delta.ids):
                break
            ids.extend(delta.ids)
            text += delta.text
        return Kept(ids=tuple(ids), text=text)

    async def _produce(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            name = f"{self.plan.session_id} turn {self.number}"
            tasks.create_task(self._generate(), name=f"{name} generate")
            if self._speaker is not None:
                tasks.create_task(self._speaker.synthesize(), name=f"{name} speak")
                tasks.create_task(self._speaker.play(), name=f"{name} play")

    async def _generate(self) -> None:
        if self.plan.say is None:
            await self._ask_model()
        else:
            self._on_delta(Delta(text=self.plan.say))
        self._emit(self._stream.flush())
        self._send_caption()
        if self._speaker is not None:
            self._speaker.finish()

    async def _ask_model(self) -> None:
        parts, turn = self._parts, self._parts.settings.turn
        loop = asyncio.get_running_loop()
        sampling = Sampling(max_tokens=turn.max_tokens, temperature=turn.temperature, top_p=turn.top_p)
        wait_s = turn.first_delta_s
        try:
            async with asyncio.timeout(wait_s) as deadline:
                self._prompt = await parts.model.render(self.plan.messages, (), self.plan.kept)
                generation = Generation(request_id=self.request_id, prompt=self._prompt, sampling=sampling)
                async with aclosing(parts.model.generate(generation)) as deltas:
                    async for delta in deltas:
                        wait_s = turn.next_delta_s
                        deadline.reschedule(loop.time() + wait_s)
                        self._on_delta(delta)
        except TimeoutError as error:
            raise EngineStalled(f"no text for {wait_s} s") from error
        finally:
            parts.model.cancel(self.request_id)
        if not self.raw_text().strip():
            raise EngineError("the model ended its reply without a word")

    def _on_delta(self, delta: Delta) -> None:
        now = self._parts.now()
        if delta.n_tokens or delta.text:
            self.clock.first_token(now)
        if delta.usage is not None:
            self._usage = delta.usage
        self._deltas.append(delta)
        self._caption_tokens += delta.n_tokens
        if delta.text:
            self._emit(self._stream.feed(delta.text), now)
        self._watch_pending()

    def _emit(self, output: Output, now: float | None = None) -> None:
        if output.caption:
            self._captions.append(output.caption)
        if output.segments:
            self._send_caption()
            for segment in output.segments:
                self._send_segment(segment, self._parts.now() if now is None else now)
        elif output.caption:
            self._caption_due()

    def _send_segment(self, segment: SpokenSegment, delta_at: float) -> None:
        stamp = delta_at * 1000 if self._parts.settings.server.debug_stamps else None
        emotion = None if segment.emotion is None else str(segment.emotion)
        self._outbox.put(
            SegmentDecided(turn=self.number, index=segment.index, text=segment.text, cut=segment.cut, emotion=emotion, at_ms=stamp)
        )
        self._n_segments += 1
        self.clock.segment(self._parts.now())
        self._parts.metrics.segments.labels(segment.cut, segment.ends, segment.language).inc()
        if self._speaker is not None:
            self._speaker.say(segment)

    def _caption_due(self) -> None:
        """Send caption text now, or together with what the next `text_delta_ms` bring."""
        wait_s = self._parts.settings.turn.text_delta_ms / 1000 - (self._parts.now() - self._caption_at)
        if wait_s <= 0:
            self._send_caption()
        elif self._caption_timer is None:
            self._caption_timer = asyncio.get_running_loop().call_later(wait_s, self._send_caption)

    def _send_caption(self) -> None:
        if self._caption_timer is not None:
            self._caption_timer.cancel()
            self._caption_timer = None
        if not self._captions:
            return
        self._caption_at = self._parts.now()
        self._outbox.put(TextDelta(turn=self.number, text="".join(self._captions), tokens=self._caption_tokens))
        self._captions, self._caption_tokens = [], 0
        if self._speaker is None:
            self._on_progress(self, "first_sent")

    def _watch_pending(self) -> None:
        """A likely end of sentence is taken for one when no delta follows for a while."""
        if self._pending_timer is not None:
            self._pending_timer.cancel()
            self._pending_timer = None
        if self._stream.pending() == "likely":
            wait_s = self._parts.settings.turn.pending_commit_ms / 1000
            self._pending_timer = asyncio.get_running_loop().call_later(wait_s, self._commit_pending)

    def _commit_pending(self) -> None:
        self._pending_timer = None
        self._emit(self._stream.commit_pending())

    def _stop_timers(self) -> None:
        for timer in (self._caption_timer, self._pending_timer):
            if timer is not None:
                timer.cancel()
        self._caption_timer = self._pending_timer = None

    def _finish_reply(self) -> None:
        usage = self._usage
        info = UsageInfo(prompt_tokens=usage.prompt_tokens, cached_tokens=usage.cached_tokens, output_tokens=usage.output_tokens)
        tokens = self._parts.metrics.tokens
        tokens.labels("prompt").inc(usage.prompt_tokens)
        tokens.labels("cached").inc(usage.cached_tokens)
        tokens.labels("output").inc(usage.output_tokens)
        self.clock.reply_done(self._parts.now())
        self._outbox.put(ReplyDone(turn=self.number, usage=info))
        self._on_progress(self, "reply_sent")

    def _fail(self, error: EngineError | StrettoError) -> None:
        if isinstance(error, EngineError):
            self._parts.metrics.engine_errors.labels(error.kind).inc()
            log.warning("language model failed", extra={"turn_id": self.number, "kind": error.kind, "detail": str(error)})
            error = from_engine(error, self.number)
        self._outbox.put(
            ErrorRaised(
                code=error.code, message=str(error), retryable=error.retryable, retry_after_ms=error.retry_after_ms, turn=self.number
            )
        )
        self._outbox.drop_turn(self.number)
        if not isinstance(error, EngineFailed):
            raise error

    def _end(self, status: TurnStatus) -> None:
        self.is_over = True
        now = self._parts.now()
        self.clock.ended(now, status, wants_audio=self._speaker is not None)
        timeline = self.clock.timeline()
        self._outbox.put(TurnDone(turn=self.number, status=status, timeline=timeline))
        fields = {name: getattr(timeline, name) for name in timeline.__struct_fields__}
        log.info(
            "turn ended",
            extra={
                "session_id": self.plan.session_id,
                "turn_id": self.number,
                "status": status,
                "n_segments": self._n_segments,
                "n_characters": len(self.raw_text()),
                "audio_ms": 0 if self._speaker is None else round(self._speaker.clock.sent_ms),
                "heard_ms": self.heard_ms(),
                "output_tokens": self._usage.output_tokens,
                "cached_tokens": self._usage.cached_tokens,
                **fields,
            },
        )

    def _make_speaker(self) -> Speaker:
        settings = self._parts.settings
        speaking = SpeakerSettings(
            turn=self.number,
            voice=self.plan.voice,
            sample_rate_hz=self.plan.audio_out.rate_hz,
            lead_ms=settings.session.lead_ms,
            first_chunk_s=settings.turn.first_chunk_s,
            stall_s=settings.session.slow_reader_s,
            debug_stamps=settings.server.debug_stamps,
        )
        return Speaker(
            speaking,
            self._parts.voices,
            self._outbox,
            self._parts.metrics,
            self.clock,
            self._parts.now,
            lambda: self._on_progress(self, "first_sent"),
        )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    errors: Sequence[BaseException] = group.exceptions
    inner = errors[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
