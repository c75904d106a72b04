"""How far a text has come through the voices that speak it: what was said, what is left, where the next audio belongs. Pure."""

from __future__ import annotations

from msgspec import structs

from engine.api import EngineError, SpeechChunk, SpeechCut, Style, Synthesis, WordTiming
from engine.audio import bytes_to_ms, ms_to_bytes
from engine.tts.chain.rest import next_word, said_until, units

_FEWEST_UNITS = 8  # a shorter text tells little about a voice's pace


class Progress:
    """One segment, divided into parts. A request speaks what is left of a part.

    After a break with a known place the next request goes on there. Without one, the same voice is asked for all of it again and what
    was heard already is dropped; another voice goes on at the start of the word that was about being said.
    """

    def __init__(self, synthesis: Synthesis) -> None:
        self.synthesis = synthesis
        self.rest = ""
        self._rest_start = 0  # in the segment
        self._part_end = 0
        self._out_ms = 0.0  # let out before this request
        self._loose_ms = 0.0  # of it, heard of `rest` without knowing to which word
        self._received = 0  # bytes of this request
        self._let_out = 0
        self._skip = 0  # bytes of this request that were heard before
        self._voice = ""
        self._pace = 0.0
        self._n_requests = 0

    def open_part(self, part: str) -> None:
        """The next part of the text follows."""
        self._rest_start, self._part_end = self._part_end, self._part_end + len(part)
        self.rest, self._loose_ms = part, 0.0
        self._end_request()

    def begin(self, voice: str, ms_per_unit: float) -> None:
        """`voice` is asked now for `rest`; `ms_per_unit` is its usual pace."""
        if self._loose_ms and voice != self._voice:
            self._go_on(said_until(self.rest, self._loose_ms, self._pace))
        self._voice, self._pace = voice, ms_per_unit
        self._skip = ms_to_bytes(self._loose_ms, self.synthesis.sample_rate_hz)
        self._n_requests += 1

    def request(self, style: Style) -> Synthesis:
        """What to ask for."""
        request_id = self.synthesis.request_id
        if self._n_requests > 1:
            request_id = f"{request_id}#{self._n_requests}"
        return structs.replace(self.synthesis, request_id=request_id, text=self.rest, voice=self._voice, style=style)

    def place(self, chunk: SpeechChunk) -> SpeechChunk | None:
        """The chunk as a part of the segment, less what was heard before; None when nothing is left of it."""
        skipped = max(0, min(len(chunk.pcm), self._skip - self._received))
        pcm = chunk.pcm[skipped:]
        self._received += len(chunk.pcm)
        self._let_out += len(pcm)
        words = tuple(self._place_word(word) for word in chunk.words if word.end_ms > self._ms(self._skip))
        if skipped and not pcm and not words:
            return None
        return SpeechChunk(pcm=pcm, words=words, voice=chunk.voice or self._voice, mp3=b"" if skipped else chunk.mp3)

    def cut(self, error: EngineError) -> None:
        """The request failed."""
        spoken = error.spoken if isinstance(error, SpeechCut) else None
        self._loose_ms = max(self._loose_ms, self._ms(self._received))
        self._end_request()
        if spoken:
            self._go_on(spoken)

    def end(self) -> float | None:
        """The request is complete; the voice's pace in it, milliseconds per unit, where it can be told."""
        whole = units(self.rest) >= _FEWEST_UNITS and not self._skip and self._let_out
        pace = self._ms(self._let_out) / units(self.rest) if whole else None
        self._end_request()
        self._go_on(len(self.rest))
        return pace

    def _end_request(self) -> None:
        self._out_ms += self._ms(self._let_out)
        self._received = self._let_out = self._skip = 0

    def _go_on(self, at: int) -> None:
        """All of `rest` before the first word at or after `at` has been said."""
        place = next_word(self.rest, at)
        self._rest_start += place
        self.rest, self._loose_ms = self.rest[place:], 0.0

    def _place_word(self, word: WordTiming) -> WordTiming:
        earlier_ms = round(self._out_ms - self._ms(self._skip))
        return WordTiming(
            start_ms=max(0, word.start_ms + earlier_ms),
            end_ms=max(0, word.end_ms + earlier_ms),
            start=word.start + self._rest_start,
            end=word.end + self._rest_start,
        )

    def _ms(self, n_bytes: int) -> float:
        return bytes_to_ms(n_bytes, self.synthesis.sample_rate_hz)
