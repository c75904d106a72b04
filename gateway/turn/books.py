"""The moments of a turn that only book-keeping asks for, and the record that is made of them at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.events import InterruptReason
from gateway.metrics import TurnClock
from gateway.speaker import Speaker
from gateway.turn.record import Ending, Spoken, TurnRecord

if TYPE_CHECKING:
    from gateway.turn.asking import Asking
    from gateway.turn.plan import Parts, Plan
    from gateway.turn.wording import Wording


class Books:
    """Each moment is set once. `speaker` None: the reply is text alone."""

    def __init__(self, plan: Plan, parts: Parts, clock: TurnClock, speaker: Speaker | None) -> None:
        self.first_delta_s: float | None = None
        self.generated_s: float | None = None
        self.stopped_by: InterruptReason | None = None
        self.error: str | None = None
        self.spoken: Spoken | None = None
        self._asked_s = parts.now()
        self._plan, self._parts, self._clock, self._speaker = plan, parts, clock, speaker
        self._is_told = False

    def stopped(self, reason: InterruptReason) -> None:
        """The reply is interrupted."""
        self.stopped_by = reason
        for watcher in self._parts.watchers:
            watcher.turn_stopped(self._plan.session_id, self._plan.number, self._plan.caller)

    def tell(self, status: Ending, asking: Asking, wording: Wording) -> None:
        """The turn's record goes to the watchers: once, and none is made where nobody watches."""
        if self._parts.watchers and not self._is_told:
            self._is_told = True
            record = self.record(status, asking, wording)
            for watcher in self._parts.watchers:
                watcher.turn_ended(record)

    def record(self, status: Ending, asking: Asking, wording: Wording) -> TurnRecord:
        """As things stand."""
        plan, speaker, now = self._plan, self._speaker, self._parts.now()
        return TurnRecord(
            session_id=plan.session_id,
            turn=plan.number,
            status=status,
            caller=plan.caller,
            input=plan.input,
            output=plan.output,
            language=plan.language,
            voice=plan.voice,
            draft=plan.draft,
            has_floor=plan.has_floor,
            started_s=self._clock.started_at,
            asked_s=self._asked_s,
            ended_s=now,
            first_delta_s=self.first_delta_s,
            generated_s=self.generated_s,
            timeline=self._clock.timeline(),
            usage=asking.usage,
            n_characters=len(asking.raw_text()),
            n_segments=wording.n_segments,
            audio_ms=0 if speaker is None else round(speaker.clock.sent_ms),
            heard_ms=0 if speaker is None else round(speaker.clock.played_ms(now)),
            stopped_by=self.stopped_by,
            error=self.error,
            spoken=self.spoken,
            segments=speaker.records() if self._parts.watchers and speaker is not None else (),
        )
