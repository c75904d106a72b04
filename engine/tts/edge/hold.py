"""Lets audio out at word ends, so that a stream that breaks off never leaves half a word. Pure.

The service tells each word's time with or before its sound. What is let out ends where a word ended or a pause was; the
rest of the text after that can be spoken by anyone without a word lost or said twice. Costs the first word's length at the
speed of the service (several times real time). Without word times nothing is held.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from engine.api import WordTiming

_MAX_HELD_MS = 2000  # longer than any word: the times are wrong, so let go
_SEARCH_CHARS = 80  # the service skips what it does not speak; a word that is further away is not this one
_TOKEN = re.compile(r"\w+|[^\w\s]+")
_SAMPLE_BYTES = 2


class Spoken(Protocol):
    """A word and its time, as the service tells it."""

    @property
    def text(self) -> str: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def end_ms(self) -> int: ...


class WordHold:
    """PCM (mono s16le) and word times in, in any order; PCM out up to a word end."""

    def __init__(self, text: str, sample_rate_hz: int) -> None:
        self._text = text
        self._bytes_per_ms = sample_rate_hz * _SAMPLE_BYTES / 1000
        self._held = bytearray()
        self._let_out_bytes = 0
        self._words: list[WordTiming] = []
        self._told = 0
        self._cursor = 0

    @property
    def received_ms(self) -> float:
        """Length of all audio so far, held or not."""
        return (self._let_out_bytes + len(self._held)) / self._bytes_per_ms

    @property
    def let_out_ms(self) -> float:
        """Length of the audio that was let out."""
        return self._let_out_bytes / self._bytes_per_ms

    @property
    def spoken(self) -> int | None:
        """Code points of the text whose audio was let out whole; None when no word times came."""
        if not self._words:
            return None
        return max((word.end for word in self._words if word.end_ms <= self.let_out_ms + 1), default=0)

    @property
    def last_word(self) -> WordTiming | None:
        """The last word that the service has told."""
        return self._words[-1] if self._words else None

    def on_words(self, words: Sequence[Spoken]) -> None:
        """Words whose audio is on its way or here."""
        for word in words:
            start, end = self._place(word.text)
            self._cursor = end
            self._words.append(WordTiming(start_ms=word.start_ms, end_ms=max(word.start_ms, word.end_ms), start=start, end=end))

    def on_pcm(self, pcm: bytes) -> None:
        """Audio, whole samples."""
        self._held += pcm

    def take(self) -> tuple[bytes, tuple[WordTiming, ...]]:
        """What may go out now, and the words that are complete with it."""
        safe_bytes = int(self._safe_ms() * self._bytes_per_ms) // _SAMPLE_BYTES * _SAMPLE_BYTES
        return self._let_out(safe_bytes - self._let_out_bytes)

    def take_all(self) -> tuple[bytes, tuple[WordTiming, ...]]:
        """The text is spoken: everything."""
        pcm, words = self._let_out(len(self._held))
        rest = tuple(self._words[self._told :])
        self._told = len(self._words)
        return pcm, words + rest

    def _safe_ms(self) -> float:
        received = self.received_ms
        if not self._words or received - self.let_out_ms > _MAX_HELD_MS:
            return received
        if received >= self._words[-1].end_ms and not _speakable(self._text[self._cursor :]):
            return received  # the pause after the last word
        return self._pause_before(received)

    def _pause_before(self, received_ms: float) -> float:
        """The last moment that no known word spans, at most `received_ms`; nothing is known after the last word's end."""
        safe = 0.0
        for word in self._words:
            if word.start_ms > received_ms:
                return received_ms
            safe = float(word.start_ms)
            if word.end_ms > received_ms:
                return safe
            safe = float(word.end_ms)
        return safe

    def _let_out(self, n_bytes: int) -> tuple[bytes, tuple[WordTiming, ...]]:
        n_bytes = max(0, min(n_bytes, len(self._held)))
        pcm = bytes(self._held[:n_bytes])
        del self._held[:n_bytes]
        self._let_out_bytes += n_bytes
        first = self._told
        while self._told < len(self._words) and self._words[self._told].end_ms <= self.let_out_ms + 1:
            self._told += 1
        return pcm, tuple(self._words[first : self._told])

    def _place(self, word: str) -> tuple[int, int]:
        """Where in the text this word stands; one that the service wrote otherwise takes the next token's place."""
        window = self._text[self._cursor : self._cursor + _SEARCH_CHARS + len(word)]
        found = window.casefold().find(word.casefold()) if len(window.casefold()) == len(window) else window.find(word)
        if found >= 0 and word:
            return self._cursor + found, self._cursor + found + len(word)
        token = _TOKEN.search(self._text, self._cursor)
        if token is None:
            return len(self._text), len(self._text)
        return token.start(), min(token.end(), token.start() + max(1, len(word)))


def _speakable(text: str) -> bool:
    return any(character.isalnum() for character in text)
