"""Which voice speaks a segment when a reply mixes languages. Pure: text in, a voice's id out.

By script, because that is what a voice can or cannot read, and by length as it sounds, so that a single foreign word never changes the
voice: it changes for a foreign clause and comes back with the first segment of its own language. Knows nothing of engines
that fail; the chain of voices sees to that. Assumes that every voice reads Latin letters beside its own script.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from engine.api import Voice

_WIDE_UNITS = 3  # a Han character sounds about as long as three Latin letters
_MOST_UNREAD = 0.25  # share of a segment that a voice may leave out before another one has to speak
# A voice reads foreign Latin words with an accent; it hands over a whole foreign clause: this share, and so many letters.
_FOREIGN_SHARE, _FOREIGN_LETTERS = 0.8, 12
_SCRIPT_LANGUAGES = {
    "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko", "CYRILLIC": "ru", "GREEK": "el", "ARABIC": "ar",
    "HEBREW": "he", "DEVANAGARI": "hi", "THAI": "th",
}  # fmt: skip
# Languages written in a script that is not the one that the table above stands for.
_SCRIPTS = {
    "ja": {"CJK", "HIRAGANA", "KATAKANA"}, "yue": {"CJK"}, "uk": {"CYRILLIC"}, "bg": {"CYRILLIC"}, "sr": {"CYRILLIC"}, "kk": {"CYRILLIC"},
    "fa": {"ARABIC"}, "ur": {"ARABIC"}, "mr": {"DEVANAGARI"}, "ne": {"DEVANAGARI"},
}  # fmt: skip
_LATIN = "LATIN"


class Choice(Struct, frozen=True):
    """Who speaks, and the language to tell it."""

    voice: str
    language: str


class VoiceChoice:
    """One reply's choices, segment by segment. `by_language` names a voice for a language, where the operator wants a certain one."""

    def __init__(self, voices: Sequence[Voice], preferred: str, language: str, by_language: Mapping[str, str] | None = None) -> None:
        self._voices = {voice.id: voice for voice in voices}
        self._by_language = by_language or {}
        own = self._voices[preferred].languages if preferred in self._voices else ()
        wanted = primary(language)
        self._home = Choice(preferred, wanted if wanted in map(primary, own) or not own else primary(own[0]))
        self._current = self._home

    def choose(self, text: str) -> Choice:
        """The voice for the next segment. Keeps the one that speaks where the text says nothing (digits, marks, one word)."""
        lengths = units_by_script(text)
        total = sum(lengths.values())
        if total == 0:
            return self._current
        if not self._is_foreign(lengths, total):
            self._current = self._home
        elif self._is_telling(lengths, total):
            self._current = self._voice_for(lengths)
        return self._current

    def _is_foreign(self, lengths: Mapping[str, int], total: int) -> bool:
        """Whether the home voice should not speak this: it cannot read enough of it, or it is a clause of another language."""
        home = scripts_of(self._home.language)
        unread = sum(length for script, length in lengths.items() if script not in home and script != _LATIN)
        if unread > _MOST_UNREAD * total:
            return True
        return _LATIN not in home and lengths.get(_LATIN, 0) >= _FOREIGN_SHARE * total

    def _is_telling(self, lengths: Mapping[str, int], total: int) -> bool:
        """A foreign word alone changes nothing, unless the voice cannot read it at all."""
        return lengths.get(_LATIN, 0) < _FOREIGN_SHARE * total or total >= _FOREIGN_LETTERS

    def _voice_for(self, lengths: Mapping[str, int]) -> Choice:
        """A voice of the foreign language: the operator's, else one of the same engine, else any; the home voice when there is none."""
        language = _language_of(lengths)
        named = self._by_language.get(language)
        if named in self._voices:
            return Choice(named, language)
        able = [voice for voice in self._voices.values() if language in map(primary, voice.languages)]
        engine = self._voices[self._home.voice].engine if self._home.voice in self._voices else ""
        able.sort(key=lambda voice: (voice.engine != engine, primary(voice.languages[0]) != language))
        return Choice(able[0].id, language) if able else self._home


def primary(language: str) -> str:
    """ "zh" of "zh-CN"."""
    return language.replace("_", "-").split("-")[0].lower()


def units_by_script(text: str) -> dict[str, int]:
    """How long the text sounds in each script, in Latin letters. Digits and marks belong to none."""
    lengths: dict[str, int] = {}
    for sign in text:
        script = _script(sign)
        if script is not None:
            lengths[script] = lengths.get(script, 0) + (_WIDE_UNITS if sign >= "\u2e80" else 1)
    return lengths


def scripts_of(language: str) -> set[str]:
    """What the language is written in."""
    if language in _SCRIPTS:
        return _SCRIPTS[language]
    own = {script for script, name in _SCRIPT_LANGUAGES.items() if name == language}
    return own or {_LATIN}


def _language_of(lengths: Mapping[str, int]) -> str:
    """Kana make a text Japanese however much Han is in it; Latin letters alone count as English."""
    if _any(lengths, ("HIRAGANA", "KATAKANA")):
        return "ja"
    foreign = {script: length for script, length in lengths.items() if script in _SCRIPT_LANGUAGES}
    if not foreign or lengths.get(_LATIN, 0) > 3 * sum(foreign.values()):
        return "en"
    return _SCRIPT_LANGUAGES[max(foreign, key=lambda script: foreign[script])]


def _any(lengths: Mapping[str, int], scripts: Iterable[str]) -> bool:
    return any(script in lengths for script in scripts)


@lru_cache(maxsize=8192)
def _script(sign: str) -> str | None:
    if not sign.isalpha():
        return None
    words = unicodedata.name(sign, "UNKNOWN").split(" ")
    first = words[1] if words[0] in ("FULLWIDTH", "HALFWIDTH") and len(words) > 1 else words[0]
    return first.partition("-")[0]
