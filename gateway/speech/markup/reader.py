"""Raw deltas to pieces: what is said, what is shown only, what is neither.

Decides each mark from the text alone, never from where a delta ends: a rule that would have to look past the end of the
buffer answers Need, and the text from there on is held back. Every rule has a limit, so that an opener without its closer is
text again after some hundred characters. Knows nothing of sentences.
"""

from __future__ import annotations

import re

from gateway.speech.emotion import Emotion
from gateway.speech.markup import code, links
from gateway.speech.markup.dispatch import rules_by_mark, suspicion, trigger
from gateway.speech.markup.pieces import NEED, Found, Mode, Need, Piece, PieceKind, Place, Verdict
from gateway.speech.markup.rules import DEFAULT, MarkupRules

_BEFORE = 48  # characters of context in front of a mark; the longest look-back is a word and some spaces
_NESTING = 8  # emotion tags open at once; a model that never closes them must not grow a list


class MarkupReader:
    """Turns the deltas of one reply into pieces that tile its raw text.

    The pieces do not depend on how the text was split into deltas, once neighbouring text pieces (and hidden ones) are joined.
    """

    def __init__(self, rules: MarkupRules = DEFAULT) -> None:
        self._rules = rules
        self._held = ""
        self._need: Need | None = None
        self._raw = 0
        self._before = "\n"
        self._mode: Mode | None = None
        self._fence_lines = 0
        self._emotions: list[Emotion] = [Emotion.NEUTRAL]
        self._pieces: list[Piece] = []
        self._rules_at = rules_by_mark(rules)
        self._trigger = trigger(rules)
        self._suspicion = suspicion(rules)
        self.begin()

    def begin(self) -> None:
        """The model begins to write: the reply, or its next part behind a tool's results. Nothing may be held back (see `flush`)."""
        rules = self._rules
        self._mode = Mode("reasoning", rules.reasoning[0][1].lower()) if rules.starts_in_reasoning else None

    def take_plain(self, delta: str) -> bool:
        """Take a delta that is plain text whatever follows, without a piece being made of it; False, and nothing taken, otherwise.

        Most deltas are plain: this is a third of the cost of `feed`.
        """
        if self._held or self._mode is not None or self._suspicion.search(delta):
            return False
        self._raw += len(delta)
        self._before = (self._before + delta)[-_BEFORE:]
        return True

    def feed(self, delta: str) -> list[Piece]:
        """The pieces that became certain with this delta."""
        self._held += delta
        need = self._need
        if need and need.stop and len(self._held) < need.limit and not need.stop.search(delta):
            return []
        return self._run(is_final=False)

    def flush(self) -> list[Piece]:
        """What was held back; the reply, or this part of it, is over. The reader stays usable."""
        return self._run(is_final=True)

    def _run(self, is_final: bool) -> list[Piece]:
        text, at, base = self._held, 0, self._raw
        self._need = None
        while at < len(text):
            place = Place(text, at, self._before, is_final)
            step = self._step(place)
            if step is None:
                break
            at += step
        self._held = text[at:]
        return self._take(text, base)

    def _step(self, place: Place) -> int | None:
        """How far the text from here was read; None to wait."""
        if self._mode is not None:
            return self._step_in(self._mode, place)
        found = self._trigger.search(place.text, place.at)
        if found is None or found.start() > place.at:
            end = found.start() if found else len(place.text)
            return self._emit_text(place, end - place.at)
        verdict = self._ask(place)
        if isinstance(verdict, Need):
            self._need = verdict
            return None
        return self._emit_text(place, 1) if verdict is None else self._emit(place, verdict)

    def _ask(self, place: Place) -> Verdict:
        """The verdict of the first rule that has one; a rule that waits makes those after it wait."""
        for rule in self._rules_at[place.text[place.at]]:
            verdict = rule(place)
            if verdict is not None:
                return verdict
        return None

    def _step_in(self, mode: Mode, place: Place) -> int | None:
        if mode.kind == "reasoning":
            return self._step_in_reasoning(mode, place)
        return self._step_in_fence(mode, place) if mode.kind == "fence" else self._step_in_address(place)

    def _step_in_address(self, place: Place) -> int | None:
        length = links.read_address_part(place)
        if length is None:
            self._need = NEED
            return None
        if length < links.ADDRESS_PART:
            self._mode = None
        return self._emit(place, Found(length, "atom", spoken=""))

    def _step_in_reasoning(self, mode: Mode, place: Place) -> int | None:
        text, at, end = place.text, place.at, mode.end
        closer = re.compile(re.escape(end), re.I | re.A).search(text, at)
        if closer:
            self._mode = None
            return self._emit(place, Found(closer.end() - at, "hidden", is_break=True))
        keep = 0
        if not place.is_final:
            keep = next((n for n in range(min(len(end) - 1, len(text) - at), 0, -1) if end.startswith(text[-n:].lower())), 0)
        length = len(text) - keep - at
        if length == 0:
            self._need = NEED
            return None
        return self._emit(place, Found(length, "hidden"))

    def _step_in_fence(self, mode: Mode, place: Place) -> int | None:
        line = code.read_fence_line(place, mode.end, self._fence_lines == 0)
        if line is None:
            self._need = code.FENCE_NEED
            return None
        length, closes = line
        notice = self._rules.code_notice if self._fence_lines == 0 else ""
        self._fence_lines += 1
        if closes:
            self._mode = None
        return self._emit(place, Found(length, "atom", spoken=notice, is_break=closes))

    def _emit_text(self, place: Place, length: int) -> int:
        self._add("text", place.text[place.at : place.at + length], length)
        return length

    def _emit(self, place: Place, found: Found) -> int:
        if found.enter is not None:
            self._mode, self._fence_lines = found.enter, 0
        if found.length:
            text = place.text[place.at : place.at + found.length] if found.kind == "atom" else ""
            self._add(found.kind, text, found.length, found.spoken, self._emotion_of(found))
        if found.is_break:
            self._pieces.append(Piece("break", "", self._raw, self._raw))
            self._before = "\n" if found.kind == "hidden" else self._before
        return found.length

    def _emotion_of(self, found: Found) -> Emotion | None:
        if found.closes_emotion:
            if len(self._emotions) > 1:
                self._emotions.pop()
            return self._emotions[-1]
        if found.emotion is not None:
            self._emotions = [*self._emotions[-_NESTING:], found.emotion]
        return found.emotion

    def _add(self, kind: PieceKind, text: str, length: int, spoken: str | None = None, emotion: Emotion | None = None) -> None:
        start = self._raw
        self._raw += length
        if text:
            self._before = (self._before + text)[-_BEFORE:]
        if kind in ("text", "hidden") and self._pieces and self._pieces[-1].kind == kind:
            last = self._pieces.pop()
            # The text of joined pieces is cut out of the buffer at the end of the run: adding strings up here would be quadratic.
            text, start = "", last.raw_start
        self._pieces.append(Piece(kind, text, start, self._raw, spoken, emotion))

    def _take(self, text: str, base: int) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return [
            Piece("text", text[piece.raw_start - base : piece.raw_end - base], piece.raw_start, piece.raw_end)
            if piece.kind == "text"
            else piece
            for piece in pieces
        ]
