"""Written text of one segment -> what a voice is given.

Rules of the language look at the written text and claim stretches of it, the most specific first; clean-up takes what nobody claimed.
English and Chinese have rules; any other language gets the clean-up alone, since a wrong number word is worse than a digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.speech.normalizer.chinese import CHINESE
from gateway.speech.normalizer.english import ENGLISH
from gateway.speech.normalizer.rules import VOICE_READS, Claims, Rule
from gateway.speech.normalizer.spoken import Edit, Spoken, respeak, speak
from gateway.speech.normalizer.symbols import citations, clean, is_speakable, tidy

__all__ = ["VOICE_READS", "AtomSpan", "Spoken", "normalize"]

_RULES: dict[str, tuple[Rule, ...]] = {"en": ENGLISH, "zh": CHINESE, "yue": CHINESE}


@dataclass(frozen=True, slots=True)
class AtomSpan:
    """Written characters `start` to `end` are an atom of markup; `spoken` is said instead, None for the text itself."""

    start: int
    end: int
    spoken: str | None


def normalize(text: str, language: str, *, atoms: Sequence[AtomSpan] = (), voice_reads: frozenset[str] = frozenset()) -> Spoken:
    """The spoken form of one segment, "" when nothing of it can be said.

    **language**: a code like `en` or `zh-CN`. **atoms**: in order, offsets in `text`. **voice_reads**: what the voice says well by
    itself and is given as written.

    Raises `ValueError` for a `voice_reads` that is not in `VOICE_READS`, or atoms outside the text or overlapping.
    """
    if unknown := voice_reads - VOICE_READS:
        raise ValueError(f"voice_reads {sorted(unknown)}: expected a subset of {sorted(VOICE_READS)}")
    rules = _RULES.get(language.replace("_", "-").split("-")[0].lower(), ())
    claims = Claims(len(text))
    at = 0
    for atom in atoms:
        if not at <= atom.start <= atom.end <= len(text):
            raise ValueError(f"atom {atom.start}..{atom.end}: expected to lie in {at}..{len(text)}, behind the atom before it")
        at = atom.end
        if atom.spoken is not None:
            claims.add(Edit(atom.start, atom.end, normalize(atom.spoken, language, voice_reads=voice_reads).text))
    if _may_need_rules(text):
        claims.add_all(citations(text))
        claims.ask(text, rules, voice_reads)
    claims.add_all(clean(text))
    spoken = speak(text, claims.ordered())
    spoken = respeak(spoken, tidy(spoken.text))
    return spoken if any(map(is_speakable, spoken.text)) else Spoken("", (0,))


def _may_need_rules(text: str) -> bool:
    """Plain prose has nothing to replace: letters, commas and stops alone."""
    return any(not (ch.isalpha() or ch in " ,!?，。！？、；：“”") for ch in text)
