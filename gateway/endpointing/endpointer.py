"""One stream of voice probabilities to utterances: begun, perhaps finished, going on, finished.

Pure: time is milliseconds of the stream's own audio. Assumes frames in order; a jump in their times counts as unheard audio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from gateway.config import EndpointingSettings
from gateway.endpointing.reading import Reading, read, read_heard
from gateway.endpointing.waiting import wait_ms


class SpeechStarted(Struct, frozen=True):
    """Somebody speaks since `at_ms`."""

    at_ms: float


class EndLikely(Struct, frozen=True):
    """Speech paused at `at_ms`, perhaps for good: the moment to read it and to begin a draft."""

    at_ms: float


class ScoreWanted(Struct, frozen=True):
    """The pause since `at_ms` is long enough to be judged by its sound."""

    at_ms: float


class SpeechResumed(Struct, frozen=True):
    """It was a pause: the same utterance goes on since `at_ms`."""

    at_ms: float


class TurnEnded(Struct, frozen=True):
    """The utterance is over since `at_ms`, decided after `waited_ms` of silence."""

    at_ms: float
    waited_ms: float
    why: Literal["silence", "forced", "length"]


class NoiseHeard(Struct, frozen=True):
    """What began as speech was too short to be any."""

    at_ms: float


Decision = SpeechStarted | EndLikely | ScoreWanted | SpeechResumed | TurnEnded | NoiseHeard


class Endpointer:
    """Feed it `hear`, `score` and `take_text`; each returns what is decided now, in order."""

    def __init__(self, settings: EndpointingSettings) -> None:
        self._settings = settings
        self._now_ms = 0.0
        self._is_speech = False
        self._is_likely = False  # the present silence was told as a likely end
        self._is_score_wanted = False
        self._run_ms = self._run_from_ms = 0.0  # of voice without a gap
        self._started_ms = self._voiced_ms = self._spoken_until_ms = 0.0
        self._score: float | None = None
        self._reading = self._plain = Reading.UNREAD  # with what may have been said instead, and without

    def adapt(self, settings: EndpointingSettings) -> None:
        """Other numbers from now on; an utterance that is open goes on under them."""
        self._settings = settings

    @property
    def is_speech(self) -> bool:
        """Whether an utterance is open."""
        return self._is_speech

    @property
    def spoken_until_ms(self) -> float:
        """The end of the last speech heard."""
        return self._spoken_until_ms

    def hear(self, pts_ms: float, length_ms: float, probability: float) -> list[Decision]:
        """The next frame's voice probability."""
        self._now_ms = pts_ms + length_ms
        settings = self._settings
        bound = settings.silence_probability if self._is_speech and self._run_ms else settings.speech_probability
        if probability >= bound:
            return self._voiced(pts_ms, length_ms)
        if not self._is_speech:
            self._run_ms = 0.0
            return []
        self._run_ms = 0.0
        return self._silent()

    def score(self, score: float) -> list[Decision]:
        """How surely the speaker has finished, judged in the pause that lasts now; a score for an earlier pause must not come here."""
        self._score = score
        return self._decide() if self._is_speech and self._is_likely else []

    def take_text(self, text: str, rivals: Sequence[str] = (), certainty: float | None = None) -> list[Decision]:
        """The utterance's text so far, readings of it that are nearly as likely, and how likely its words are (`read_heard`)."""
        self._reading, self._plain = read_heard(text, rivals, certainty), read(text)
        return self._decide() if self._is_speech and self._is_likely else []

    def force(self) -> list[Decision]:
        """The speaker says that it is over (a button), or cannot say more (muted)."""
        if not self._is_speech:
            return []
        return self._end("forced")

    def reset(self) -> None:
        """Forget the open utterance without a word."""
        self._forget()

    def wait_ms(self) -> float:
        """The silence that would end the turn, as things stand."""
        return wait_ms(self._settings, self._score, self._reading, self._plain)

    def _voiced(self, pts_ms: float, length_ms: float) -> list[Decision]:
        settings = self._settings
        if self._run_ms == 0:
            self._run_from_ms = pts_ms
        self._run_ms += length_ms
        if not self._is_speech:
            if self._run_ms < settings.start_ms:
                return []
            self._is_speech, self._started_ms = True, self._run_from_ms
            self._spoken_until_ms, self._voiced_ms = self._now_ms, self._run_ms
            return [SpeechStarted(self._started_ms)]
        if not self._is_trusted():
            return []  # one frame within a silence may be a click
        self._spoken_until_ms = self._now_ms
        self._voiced_ms += length_ms
        decisions: list[Decision] = []
        if self._is_likely:
            decisions.append(SpeechResumed(self._run_from_ms))
            self._is_likely = self._is_score_wanted = False
            self._score, self._reading, self._plain = None, Reading.UNREAD, Reading.UNREAD
        if self._now_ms - self._started_ms >= settings.longest_utterance_s * 1000:
            decisions += self._end("length")
        return decisions

    def _is_trusted(self) -> bool:
        """Whether the present run of voice counts as speech: after a likely end it must be as long as a start."""
        return not self._is_likely or self._run_ms >= self._settings.start_ms

    def _silent(self) -> list[Decision]:
        decisions: list[Decision] = []
        if not self._is_likely and self._silence_ms() >= self._settings.likely_ms:
            if self._voiced_ms < self._settings.min_speech_ms:
                at_ms = self._spoken_until_ms
                self._forget()
                return [NoiseHeard(at_ms)]
            self._is_likely = True
            decisions.append(EndLikely(self._spoken_until_ms))
        if self._is_likely and not self._is_score_wanted and self._silence_ms() >= self._settings.score_ms:
            self._is_score_wanted = True
            decisions.append(ScoreWanted(self._spoken_until_ms))
        return decisions + self._decide()

    def _decide(self) -> list[Decision]:
        if not self._run_ms and self._is_likely and self._silence_ms() >= self.wait_ms():
            return self._end("silence")
        return []

    def _silence_ms(self) -> float:
        return self._now_ms - self._spoken_until_ms

    def _end(self, why: Literal["silence", "forced", "length"]) -> list[Decision]:
        ended = TurnEnded(self._spoken_until_ms, self._silence_ms(), why)
        self._forget()
        return [ended]

    def _forget(self) -> None:
        self._is_speech = self._is_likely = self._is_score_wanted = False
        self._run_ms = self._run_from_ms = 0.0
        self._started_ms = self._voiced_ms = 0.0
        self._spoken_until_ms = self._now_ms
        self._score = None
        self._reading = self._plain = Reading.UNREAD
