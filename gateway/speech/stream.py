"""Raw deltas of one reply -> captions and segments that are ready to be spoken.

The one place where markup, segmenter and normaliser meet. It keeps the way back from any caption offset to the raw text, so
that a reply that was interrupted can be cut where it was heard. Pure: no clock, no tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gateway.speech.captions import Heard, WordTiming, heard
from gateway.speech.markup import DEFAULT as DEFAULT_RULES
from gateway.speech.markup import Emotion, MarkupReader, MarkupRules, Piece
from gateway.speech.normalizer import AtomSpan, Spoken, normalize
from gateway.speech.segmenter import DEFAULT as DEFAULT_OPTIONS
from gateway.speech.segmenter import Segment, Segmenter, SegmentOptions

SILENT_LIMIT = 2000
"""Text without anything to say (a code block) is held for the next segment up to so many characters, or to the end."""


@dataclass(frozen=True, slots=True)
class _Span:
    """`length` caption characters from `caption` on that stand unbroken in the raw text from `raw` on."""

    caption: int
    raw: int
    length: int


@dataclass(frozen=True, slots=True)
class SpokenSegment:
    """A piece of the reply to be spoken. `text`: as written (caption); `spoken.text`: what the voice gets, "" for nothing.

    `raw_start`..`raw_end` tile the raw text from segment to segment. `emotion`: in force at its first spoken character, None before
    any mark. `cut`: why it ended; `ends`: how it ends.
    """

    index: int
    text: str
    spoken: Spoken
    raw_start: int
    raw_end: int
    emotion: Emotion | None
    cut: Literal["stop", "newline", "clause", "length", "timer", "end"]
    ends: Literal["stop", "newline", "clause", "none"]
    language: str
    _spans: tuple[_Span, ...] = field(default=(), repr=False)

    def heard(self, heard_ms: float, audio_ms: float, words: Sequence[WordTiming] | None = None) -> Heard:
        """The written text that was heard after `heard_ms` of `audio_ms` of this segment's sound."""
        return heard(self.text, self.spoken, heard_ms, audio_ms, words)

    def raw_offset(self, text_offset: int) -> int:
        """Where in the raw text the caption offset `text_offset` of this segment stands (after the character before it)."""
        if text_offset <= 0:
            return self.raw_start
        if text_offset >= len(self.text):
            return self.raw_end
        for span in reversed(self._spans):
            if span.caption < text_offset:
                return span.raw + min(text_offset - span.caption, span.length)
        return self.raw_start


@dataclass(frozen=True, slots=True)
class Output:
    """`caption`: new caption text, to be sent before the segments."""

    caption: str = ""
    segments: tuple[SpokenSegment, ...] = ()


class SpeechStream:
    """One reply. Joined segment texts are the joined captions; `flush` ends a part of the reply, the stream stays usable."""

    def __init__(
        self,
        *,
        language: str,
        rules: MarkupRules = DEFAULT_RULES,
        options: SegmentOptions = DEFAULT_OPTIONS,
        voice_reads: frozenset[str] = frozenset(),
    ) -> None:
        self._reader = MarkupReader(rules)
        self._segmenter = Segmenter(language, options)
        self._voice_reads = voice_reads
        self._caption = 0
        self._raw = 0
        self._raw_taken = 0
        self._index = 0
        self._spans: list[_Span] = []
        self._atoms: list[tuple[int, int, str | None]] = []
        self._emotions: list[tuple[int, Emotion]] = []
        self._emotion: Emotion | None = None
        self._silent: list[Segment] = []

    def feed(self, delta: str) -> Output:
        """Captions and segments that became certain with this delta."""
        if self._reader.take_plain(delta):
            return self._read([Piece("text", delta, self._raw, self._raw + len(delta))] if delta else [])
        return self._read(self._reader.feed(delta))

    def flush(self) -> Output:
        """All that is left: the reply ended, or a tool call, an interruption or another role ends this part."""
        output = self._read(self._reader.flush())
        segments = [*output.segments, *self._speak(self._segmenter.flush(), is_last=True)]
        return Output(output.caption, tuple(segments))

    def begin_part(self) -> None:
        """The reply goes on in another request of the model, behind a flush: reasoning that was open is over, and may begin again."""
        self._reader.begin()

    def pending(self) -> Literal["none", "likely", "unlikely"]:
        """Whether the end of a sentence is undecided for want of the next character."""
        return self._segmenter.pending()

    def commit_pending(self) -> Output:
        """End the segment at an undecided but likely end: no delta came for a while."""
        return Output("", tuple(self._speak(self._segmenter.commit_pending())))

    def _read(self, pieces: list[Piece]) -> Output:
        captions: list[str] = []
        segments: list[SpokenSegment] = []
        for piece in pieces:
            self._raw = piece.raw_end
            if piece.kind == "break":
                segments += self._speak(self._segmenter.flush())
            elif piece.emotion is not None:
                self._emotions.append((self._caption, piece.emotion))
            elif piece.text:
                captions.append(piece.text)
                self._place(piece)
                segments += self._speak(self._segmenter.feed(piece.text, piece.kind == "atom"))
        return Output("".join(captions), tuple(segments))

    def _place(self, piece: Piece) -> None:
        """Remember where the caption text of a piece stands in the raw text."""
        start, length = self._caption, len(piece.text)
        last = self._spans[-1] if self._spans else None
        if last and last.raw + last.length == piece.raw_start:
            self._spans[-1] = _Span(last.caption, last.raw, last.length + length)
        else:
            self._spans.append(_Span(start, piece.raw_start, length))
        if piece.kind == "atom":
            self._atoms.append((start, start + length, piece.spoken))
        self._caption += length

    def _speak(self, segments: list[Segment], is_last: bool = False) -> list[SpokenSegment]:
        """Segments with their spoken form; one with nothing to say leads the next."""
        out: list[SpokenSegment] = []
        for segment in segments:
            self._silent.append(segment)
            made = self._join()
            if made.spoken.text or len(made.text) > SILENT_LIMIT:
                out.append(self._take(made))
        if is_last and self._silent:
            out.append(self._take(self._join()))
        if is_last and out:
            out[-1] = self._to_raw_end(out[-1])
        return out

    def _join(self) -> SpokenSegment:
        """The held segments as one, not yet taken."""
        first, last = self._silent[0], self._silent[-1]
        text = "".join(segment.text for segment in self._silent)
        start, end = first.start, last.end
        atoms = [
            AtomSpan(max(a, start) - start, min(b, end) - start, spoken if spoken is None or (start <= a and b <= end) else "")
            for a, b, spoken in self._atoms
            if a < end and b > start
        ]
        spoken = normalize(text, last.language, atoms=atoms, voice_reads=self._voice_reads)
        spans = tuple(_clip(span, start, end) for span in self._spans if span.caption < end and span.caption + span.length > start)
        raw_end = spans[-1].raw + spans[-1].length if spans else self._raw
        emotion = self._emotion_at(start + _voiced_from(text))
        return SpokenSegment(self._index, text, spoken, self._raw_taken, raw_end, emotion, last.cut, last.ends, last.language, spans)

    def _emotion_at(self, caption: int) -> Emotion | None:
        return next((emotion for at, emotion in reversed(self._emotions) if at <= caption), self._emotion)

    def _take(self, made: SpokenSegment) -> SpokenSegment:
        end = self._silent[-1].end
        self._silent.clear()
        self._index += 1
        self._raw_taken = made.raw_end
        self._emotion = self._emotion_at(end - 1)
        self._emotions = [mark for mark in self._emotions if mark[0] >= end]
        self._atoms = [atom for atom in self._atoms if atom[1] > end]
        self._spans = [span for span in self._spans if span.caption + span.length > end or span is self._spans[-1]]
        return made

    def _to_raw_end(self, made: SpokenSegment) -> SpokenSegment:
        """Hidden text at the very end belongs to the last segment."""
        self._raw_taken = self._raw
        return SpokenSegment(
            made.index, made.text, made.spoken, made.raw_start, self._raw, made.emotion, made.cut, made.ends, made.language, made._spans
        )


def _voiced_from(text: str) -> int:
    return next((at for at, char in enumerate(text) if char.isalnum()), 0)


def _clip(span: _Span, start: int, end: int) -> _Span:
    """The part of a span within a segment, from the segment's start."""
    skipped = max(0, start - span.caption)
    return _Span(max(0, span.caption - start), span.raw + skipped, min(span.caption + span.length, end) - span.caption - skipped)
