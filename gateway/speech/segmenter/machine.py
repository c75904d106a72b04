"""The segmenter: caption text in, segments out, each the instant it is known to be complete.

One forward machine. `_scan` is the first character not yet decided; a rule answers CUT, NO or NEED (more text), so the
segments are the same however the text was split into deltas. Joined segments are the text. Knows nothing of markup.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from gateway.speech.segmenter.characters import CLAUSES, NEWLINES, STOPS, interest, is_speakable
from gateway.speech.segmenter.closers import judge_closer
from gateway.speech.segmenter.ending import Cut, Ends, ending_of, is_stop
from gateway.speech.segmenter.lengths import (
    DEFAULT,
    HAN_WEIGHT,
    TAIL,
    SegmentOptions,
    best_place,
    hard_place,
    is_clause_end,
    weight,
)
from gateway.speech.segmenter.nesting import Nesting
from gateway.speech.segmenter.rules import rules_for
from gateway.speech.segmenter.script import language_of
from gateway.speech.segmenter.stops import is_likely, judge_stop
from gateway.speech.segmenter.verdict import NEED_UNLIKELY, Answer, Verdict, cut, no
from gateway.speech.segmenter.view import View

FIRST_LEAST = 12
"""The first segment is not cut by length before so many characters."""
STEP = 64
"""Characters until a place is looked for again where there was none."""
BLOCK = 1024
"""Characters read at a time: taking segments off a long buffer costs the square of its length."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Text sent to TTS, as written. `start` and `end` count code points of the whole caption text."""

    text: str
    start: int
    end: int
    cut: Cut
    ends: Ends
    language: str


class Segmenter:
    """Segments of one reply. `language`: a tag such as `en` or `zh-TW`."""

    def __init__(self, language: str = "en", options: SegmentOptions = DEFAULT) -> None:
        self._language = language
        self._rules = rules_for(language)
        self._options = options
        self._buffer = ""
        self._base = 0
        self._scan = 0
        self._sentence = 0
        self._carried = ""
        self._nesting = Nesting()
        self._atoms: list[tuple[int, int]] = []
        self._waiting: Verdict | None = None
        self._is_first = options.early_first
        self._check = self._limit()
        self._interest = _interest(self._is_first, self._rules.language)

    def feed(self, text: str, atomic: bool = False) -> list[Segment]:
        """Segments that became complete through this text; `atomic` text is never cut inside."""
        if self._waiting is None and len(text) == 1 and text.isalpha() and len(self._buffer) < self._check - 1 and not atomic:
            self._buffer += text
            self._scan += 1
            return []
        if atomic and text:
            start = self._base + len(self._buffer)
            self._atoms.append((start, start + len(text)))
        if len(text) <= BLOCK:
            self._buffer += text
            return self._advance(False)
        out: list[Segment] = []
        for at in range(0, len(text), BLOCK):
            self._buffer += text[at : at + BLOCK]
            out += self._advance(False)
        return out

    def flush(self) -> list[Segment]:
        """All that is left, at the end of the text or where something else ends it; the segmenter goes on afterwards."""
        out = self._advance(True)
        if self._buffer:
            out.append(self._emit(len(self._buffer), "end"))
        self._nesting.open.clear()
        self._waiting = None
        return out

    def pending(self) -> Literal["none", "likely", "unlikely"]:
        """Whether a decision is open, and how it will probably go."""
        if self._waiting is None:
            return "none"
        return "likely" if self._is_likely(self._waiting) else "unlikely"

    def _is_likely(self, waiting: Verdict) -> bool:
        return is_likely(self._view(True), self._scan) if waiting.likely is None else waiting.likely

    def _view(self, final: bool) -> View:
        return View(self._buffer, self._sentence, self._carried, final, self._rules)

    def room(self) -> int:
        """How many characters that are of no interest may come before anything can be decided."""
        return 0 if self._waiting is not None else self._check - len(self._buffer) - 1

    def is_plain(self, text: str) -> bool:
        """Whether nothing is decided at any of these characters (unless something waits for them)."""
        return self._interest.search(text) is None

    def commit_pending(self) -> list[Segment]:
        """End the segment at an open decision that is `likely`; nothing otherwise."""
        if self._waiting is None or not self._is_likely(self._waiting) or not is_speakable(self._buffer):
            return []
        self._nesting.open.clear()
        self._waiting = None
        self._scan = len(self._buffer)
        return [self._emit(self._scan, "timer")]

    def _limit(self) -> int:
        """Characters after which the length is looked at: the fewest that can reach the limit."""
        chars = self._options.first_chars if self._is_first else self._options.soft_chars
        return int(chars / HAN_WEIGHT)

    def _advance(self, final: bool) -> list[Segment]:
        out: list[Segment] = []
        while True:
            found = self._interest.search(self._buffer, self._scan)
            at = found.start() if found else len(self._buffer)
            if at >= self._check and self._waiting is None:
                cut_at = self._too_long()
                if cut_at:
                    out.append(self._emit(cut_at, "length"))
                continue
            if found is None:
                self._scan = at
                self._waiting = None
                return out
            self._scan = at
            verdict = self._decide(at, final)
            if verdict.answer is Answer.NEED:
                self._waiting = verdict
                return out
            self._waiting = None
            if verdict.answer is Answer.NO:
                self._scan = max(verdict.at, at + 1)
            else:
                out.append(self._emit(verdict.at, self._why(at)))

    def _why(self, at: int) -> Cut:
        char = self._buffer[at]
        if char in NEWLINES:
            return "newline"
        return "clause" if char in CLAUSES and not is_stop(char, self._rules.language) else "stop"

    def _decide(self, at: int, final: bool) -> Verdict:
        char = self._buffer[at]
        for start, end in self._atoms:
            if start <= self._base + at < end:
                return no(end - self._base)
        if char in NEWLINES:
            return self._newline(at)
        self._nesting.forget(self._base + at)
        view = self._view(final)
        index = self._nesting.closed_by(char)
        if index >= 0:
            entry = self._nesting.open[index]
            verdict = judge_closer(view, at, entry, index == 0, entry.at - self._base)
            if verdict.answer is not Answer.NEED:
                del self._nesting.open[index:]
            return self._voiced(verdict)
        if is_stop(char, self._rules.language):
            if self._nesting.open:
                return no(at + 1)
            return self._voiced(judge_stop(view, at) if char in STOPS else self._letter_stop(at, final))
        if char in CLAUSES:
            return self._clause(at, final)
        return no(at + 1) if self._nesting.push(view, at, self._base) else NEED_UNLIKELY

    def _newline(self, at: int) -> Verdict:
        self._nesting.open.clear()
        if is_speakable(self._buffer[:at]):
            return cut(at + 1)
        self._sentence = at + 1
        return no(at + 1)

    def _letter_stop(self, at: int, final: bool) -> Verdict:
        """A stop that is a clause mark elsewhere: only before a space."""
        if at + 1 == len(self._buffer):
            return no(at + 1) if final else NEED_UNLIKELY
        after = self._buffer[at + 1]
        return cut(at + 1) if after.isspace() and after not in NEWLINES else no(at + 1)

    def _voiced(self, verdict: Verdict) -> Verdict:
        """A segment that says nothing is never cut: it leads the next one."""
        if verdict.answer is Answer.CUT and not is_speakable(self._buffer[: verdict.at]):
            return no(verdict.at)
        return verdict

    def _clause(self, at: int, final: bool) -> Verdict:
        """Only the first segment may end at a clause mark, and only with nothing open."""
        if not self._is_first or self._nesting.open:
            return no(at + 1)
        ends = is_clause_end(self._buffer, at, final, self._options)
        if ends is None:
            return NEED_UNLIKELY
        return cut(at + 1) if ends else no(at + 1)

    def _too_long(self) -> int:
        """Where to cut at the length limit, or 0 when the limit moved on."""
        options, head = self._options, self._buffer[: self._check]
        limit = options.first_chars if self._is_first else options.soft_chars
        load = weight(head)
        if load < limit:
            self._check += max(1, int((limit - load) / HAN_WEIGHT))
            return 0
        place = self._outside_atoms(best_place(head, FIRST_LEAST if self._is_first else TAIL))
        if place and is_speakable(head[:place]):
            return place
        if len(head) >= options.hard_chars:
            return hard_place(head)
        self._check = min(len(head) + STEP, max(options.hard_chars, len(head) + 1))
        return 0

    def _outside_atoms(self, place: int) -> int:
        """The place, or the start of the atom that it falls into."""
        return next((max(0, start - self._base) for start, end in self._atoms if start < self._base + place < end), place)

    def _emit(self, at: int, why: Cut) -> Segment:
        text = self._buffer[:at]
        segment = Segment(text, self._base, self._base + at, why, ending_of(text, self._rules.language), language_of(text, self._language))
        self._buffer = self._buffer[at:]
        self._base += at
        self._scan = max(0, self._scan - at)
        self._sentence = 0
        self._carried = text.rstrip()[-1:] if why in ("clause", "length") else ""
        self._atoms = [span for span in self._atoms if span[1] > self._base]
        if self._is_first and is_speakable(text):
            self._is_first = False
            self._interest = _interest(False, self._rules.language)
        self._check = self._limit()
        return segment


@lru_cache(maxsize=128)
def _interest(is_first: bool, language: str) -> re.Pattern[str]:
    """Clause marks matter to the first segment, and where they end sentences."""
    return interest("".join(CLAUSES) if is_first else "".join(char for char in ";\u037e:" if is_stop(char, language)))
