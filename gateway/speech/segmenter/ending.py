"""How a segment ends, whatever triggered the cut: what the punctuation hit rate counts."""

from typing import Literal

from gateway.speech.segmenter.characters import CLAUSES, CLOSERS, MARKS, STOPS

Cut = Literal["stop", "newline", "clause", "length", "timer", "end"]
Ends = Literal["stop", "newline", "clause", "none"]
_STOPS_BY_LANGUAGE = {"el": frozenset(";\u037e"), "hy": frozenset(":")}


def is_stop(char: str, language: str) -> bool:
    """Whether the mark ends sentences in the language (primary tag): `;` asks in Greek, `:` ends a sentence in Armenian."""
    return char in STOPS or char in _STOPS_BY_LANGUAGE.get(language, "")


def ending_of(text: str, language: str) -> Ends:
    """How the text ends; closers, markdown marks, emoji and spaces after its last mark are looked through."""
    at = len(text)
    while at > 0 and (text[at - 1].isspace() or text[at - 1] in MARKS or text[at - 1] in CLOSERS or _is_picture(text[at - 1])):
        at -= 1
    last = text[at - 1] if at else ""
    if last and is_stop(last, language):
        return "stop"
    if "\n" in text[at:]:
        return "newline"
    return "clause" if last in CLAUSES and last else "none"


def _is_picture(char: str) -> bool:
    return (char >= "\u2190" and not char.isalnum() and not "\u2e80" <= char <= "\uffef") or char in "\u200d\ufe0f"
