"""Segments over raw model text, for scorers and tools: markup and segmenter joined, nothing lost.

Hidden text (reasoning, marks) rides at the front of the next segment; a reasoning block that ends is a piece of its own.
"""

from gateway.speech.markup import MarkupReader, Piece
from gateway.speech.segmenter.lengths import SegmentOptions
from gateway.speech.segmenter.machine import Segment, Segmenter

SENTENCES = SegmentOptions(early_first=False, soft_chars=1500, hard_chars=2000)
"""Sentences whole, for measuring; a limit stays so that memory is bounded."""
_CALM = frozenset(" ,'’;:，、；：")
"""With letters and digits: characters that complete no mark and, mostly, no sentence."""
BLOCK = 1024
"""Characters read at a time: slicing costs the square of it."""


class RawSegmenter:
    """Joined segments are the raw text.

    Letters, digits, spaces and commas decide nothing while neither stage waits for a next character: they are collected for one pass.
    """

    def __init__(self, language: str, options: SegmentOptions = SENTENCES) -> None:
        self._reader = MarkupReader()
        self._segmenter = Segmenter(language, options)
        self._raw = ""
        self._hidden: list[tuple[int, int]] = []
        self._caption = 0
        self._taken = 0
        self._fed = 0
        self._read_to = 0
        self._quiet = 0
        self._waiting = ""

    def feed(self, text: str) -> list[str]:
        waiting = self._waiting
        if len(waiting) < self._quiet and (text.isalnum() or (text in _CALM and self._segmenter.is_plain(text))):
            self._waiting = waiting + text
            return []
        text, self._waiting = waiting + text, ""
        if len(text) <= BLOCK:
            return self._feed_block(text)
        out: list[str] = []
        for at in range(0, len(text), BLOCK):
            out += self._feed_block(text[at : at + BLOCK])
        return out

    def _feed_block(self, text: str) -> list[str]:
        self._raw += text
        self._fed += len(text)
        if self._reader.take_plain(text):
            self._read_to = self._fed
            self._caption += len(text)
            segments = self._segmenter.feed(text)
            self._quiet = self._segmenter.room()
            return [self._take(segment) for segment in segments] if segments else []
        pieces = self._reader.feed(text)
        if pieces:
            self._read_to = pieces[-1].raw_end
        out = self._read(pieces)
        self._quiet = self._segmenter.room() if self._read_to == self._fed else 0
        return out

    def flush(self) -> list[str]:
        self._quiet = 0
        out = self.feed("") + self._read(self._reader.flush())
        out += map(self._take, self._segmenter.flush())
        return [*out, *self._take_rest()]

    def _read(self, pieces: list[Piece]) -> list[str]:
        out: list[str] = []
        for piece in pieces:
            if piece.kind == "break":
                out += map(self._take, self._segmenter.flush())
                out += self._take_rest(piece.raw_end)
            elif piece.text:
                self._caption += len(piece.text)
                out += map(self._take, self._segmenter.feed(piece.text, piece.kind == "atom"))
            else:
                self._hidden.append((self._caption, piece.raw_end - piece.raw_start))
        return out

    def _take(self, segment: Segment) -> str:
        """The raw text up to the end of a segment."""
        length = segment.end - segment.start
        while self._hidden and self._hidden[0][0] < segment.end:
            length += self._hidden.pop(0)[1]
        return self._cut(length)

    def _take_rest(self, end: int | None = None) -> list[str]:
        length = len(self._raw) if end is None else end - self._taken
        self._hidden.clear()
        return [self._cut(length)] if length else []

    def _cut(self, length: int) -> str:
        text, self._raw = self._raw[:length], self._raw[length:]
        self._taken += length
        return text


def for_language(language: str) -> RawSegmenter:
    """A sentence splitter over raw text: no early first segment."""
    return RawSegmenter(language)


def for_language_early(language: str) -> RawSegmenter:
    """The same with the first segment cut early, as the gateway speaks."""
    return RawSegmenter(language, SegmentOptions())
