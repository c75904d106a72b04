"""A turn's text on its way out: deltas to captions and segments, the segments at once, the captions gathered for a few milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.api import Delta
from gateway.events import SegmentDecided, TextDelta
from gateway.metrics import TurnClock
from gateway.speech.markup import behind_reasoning
from gateway.speech.segmenter import SegmentOptions
from gateway.speech.stream import Output, SpeechStream, SpokenSegment
from gateway.turn.gate import Gate
from gateway.turn.plan import Parts, Plan


class Wording:
    """Feeds one `SpeechStream`; `on_segment` gets every segment after its frame, `on_text` is told of each caption frame.

    `hold` takes each segment before that, where it is judged first; the captions then come with what `let_out` is given.
    """

    def __init__(
        self,
        plan: Plan,
        parts: Parts,
        gate: Gate,
        clock: TurnClock,
        on_segment: Callable[[SpokenSegment], None],
        on_text: Callable[[], None],
    ) -> None:
        self.hold: Callable[[SpokenSegment, float], None] | None = None
        options = SegmentOptions(early_first=parts.settings.speech.early_first_segment)
        self.n_segments = 0
        rules = parts.rules if plan.say is None else behind_reasoning(parts.rules)
        self._stream = SpeechStream(language=plan.language, rules=rules, options=options)
        self._plan, self._parts, self._gate, self._clock = plan, parts, gate, clock
        self._on_segment, self._on_text = on_segment, on_text
        self._captions: list[str] = []
        self._sent: list[str] = []
        self._caption_tokens = 0
        self._caption_at = float("-inf")
        self._caption_timer: asyncio.TimerHandle | None = None
        self._pending_timer: asyncio.TimerHandle | None = None

    def feed(self, delta: Delta) -> None:
        """Text from the model."""
        self._caption_tokens += delta.n_tokens
        if delta.text:
            self._emit(self._stream.feed(delta.text), self._parts.now())
        self._watch_pending()

    def flush(self) -> None:
        """A part of the reply is complete: nothing of it may wait any longer."""
        self._stop_pending()
        self._emit(self._stream.flush())
        self._send_caption()

    def begin_part(self) -> None:
        """The reply goes on behind its tools' results."""
        self._stream.begin_part()

    def stop(self) -> None:
        """No timer fires any more."""
        self._stop_pending()
        if self._caption_timer is not None:
            self._caption_timer.cancel()
            self._caption_timer = None

    def caption(self) -> str:
        """The caption text that was handed out."""
        return "".join(self._sent)

    def let_out(self, segment: SpokenSegment, decided_s: float) -> None:
        """A segment that was held may be heard."""
        self._captions.append(segment.text)
        self._send_caption()
        self._send_segment(segment, decided_s)

    def _emit(self, output: Output, now: float | None = None) -> None:
        if self.hold is not None:
            for segment in output.segments:
                self.hold(segment, self._parts.now() if now is None else now)
            return
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
        number = self._plan.number
        self._gate.put(SegmentDecided(turn=number, index=segment.index, text=segment.text, cut=segment.cut, emotion=emotion, at_ms=stamp))
        self.n_segments += 1
        self._gate.do(lambda: self._clock.segment(self._parts.now()))
        is_early = segment.index == 0 and segment.cut in ("clause", "length")  # cut for speed: no question of the splitter's hits
        self._gate.do(self._parts.metrics.segments.labels("early" if is_early else segment.cut, segment.ends, segment.language).inc)
        self._on_segment(segment)

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
        text = "".join(self._captions)
        self._sent.append(text)
        self._gate.put(TextDelta(turn=self._plan.number, text=text, tokens=self._caption_tokens))
        self._captions, self._caption_tokens = [], 0
        self._on_text()

    def _watch_pending(self) -> None:
        """A likely end of sentence is taken for one when no delta follows for a while."""
        self._stop_pending()
        if self._stream.pending() == "likely":
            wait_s = self._parts.settings.turn.pending_commit_ms / 1000
            self._pending_timer = asyncio.get_running_loop().call_later(wait_s, self._commit_pending)

    def _commit_pending(self) -> None:
        self._pending_timer = None
        self._emit(self._stream.commit_pending())

    def _stop_pending(self) -> None:
        if self._pending_timer is not None:
            self._pending_timer.cancel()
            self._pending_timer = None
