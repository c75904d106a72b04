"""What comes after a stop, read strictly forward.

Each question returns NEED when its answer lies beyond the buffer, so that no decision can depend on where a delta ended.
`final` says that the stream has ended: then the end of the buffer is an answer too.
"""

from gateway.speech.segmenter.characters import MARKS, NEWLINES

NEED = -1
LONGEST_WORD = 24
"""Beyond this a "word" tells nothing more (and a run of letters must not hold a decision for ever)."""
SKIPPED_BEFORE_WORD = frozenset("\"'“‘«„([¿¡「『（") | MARKS


def visible(text: str, at: int, final: bool) -> int:
    """Offset of the next character that is not a space or a markdown mark; a newline counts. len(text) at the end, or NEED."""
    end = len(text)
    while at < end:
        char = text[at]
        if char in NEWLINES or not (char.isspace() or char in MARKS):
            return at
        at += 1
    return end if final else NEED


def word_at(text: str, at: int, final: bool) -> str | None:
    """The word that begins at or after `at`, openers skipped; None when more text is needed."""
    end = len(text)
    while at < end and text[at] in SKIPPED_BEFORE_WORD:
        at += 1
    start = at
    while at < end and (text[at].isalpha() or text[at] in "'’") and at - start < LONGEST_WORD:
        at += 1
    if at == end and not final and at - start < LONGEST_WORD:
        return None
    return text[start:at]
