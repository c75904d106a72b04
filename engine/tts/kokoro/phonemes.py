"""Text to the phonemes that Kokoro was trained on. Inside the worker only: espeak-ng is GPL-3.0.

espeak-ng (inside piper-tts) speaks for the Latin languages, misaki for Chinese. misaki leaves Latin words as they are, which the model
would read letter by letter as phonemes: they go through espeak-ng as English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from piper.phonemize_espeak import EspeakPhonemizer

# "en" is British.
_ESPEAK_VOICES = {"a": "en-us", "b": "en", "e": "es", "f": "fr", "h": "hi", "i": "it", "p": "pt-br"}
_LATIN_RUN = re.compile(r"[A-Za-z][A-Za-z'’\- ]*[A-Za-z]|[A-Za-z]")
_ELLIPSIS = re.compile(r"\.{2,}|…+")  # espeak-ng drops it with the space behind it


class Phonemizer:
    """`kind` is the first letter of a voice's name: its language and accent."""

    def __init__(self, with_chinese: bool) -> None:
        self._espeak = EspeakPhonemizer()
        self._chinese: Callable[[str], str] | None = _load_chinese() if with_chinese else None

    def phonemes(self, text: str, kind: str) -> str:
        """Phonemes with marks and single spaces."""
        text = _ELLIPSIS.sub(", ", text)
        if kind == "z":
            return _tidy(self._mixed(text))
        return _tidy(self._latin(text, _ESPEAK_VOICES[kind]))

    def _latin(self, text: str, voice: str) -> str:
        sentences = ("".join(sentence) for sentence in self._espeak.phonemize(voice, text.replace("[[", "[")))
        return unicodedata.normalize("NFC", " ".join(sentences))

    def _mixed(self, text: str) -> str:
        assert self._chinese is not None, "Chinese voices are loaded with their phonemizer"
        parts, at = [], 0
        for latin in _LATIN_RUN.finditer(text):
            parts += [self._chinese(text[at : latin.start()]), self._latin(latin.group(), "en-us")]
            at = latin.end()
        return " ".join([*parts, self._chinese(text[at:])])


def _load_chinese() -> Callable[[str], str]:
    import logging

    import jieba  # misaki's word splitter: it tells its loading on the root logger

    jieba.setLogLevel(logging.WARNING)
    from misaki.zh import ZHG2P

    speak = ZHG2P()

    def chinese(text: str) -> str:
        return str(speak(text)[0]) if text.strip() else ""

    chinese("你好")  # loads the dictionary: not in a conversation
    return chinese


def _tidy(phonemes: str) -> str:
    """Single spaces, none before a mark."""
    return re.sub(r"\s+([.!?;:,…])", r"\1", " ".join(phonemes.split()))
