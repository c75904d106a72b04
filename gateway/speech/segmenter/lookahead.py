"""What comes after a stop, read strictly forward.

Each question answers NEED when its answer lies beyond the buffer, so that no decision can depend on where a delta ended.
`final` says that the stream has ended: then the end of the buffer is an answer too. Every look is bounded.
"""

from gateway.speech.segmenter.characters import BRACKET_CLOSERS, CLAUSES, MARKS, NEWLINES, STOPS

NEED = -1
GOES_ON = -2
LONGEST_WORD = 24
"""Beyond this a "word" tells nothing more, and a run of letters must not hold a decision for ever."""
LONGEST_GAP = 32
"""The same for spaces."""
_NOSES = "-'"
_MOUTHS = frozenset(")(DPpOo/|3*]")
_SKIPPED_BEFORE_WORD = frozenset("\"'“‘«„([¿¡「『（") | MARKS
_CONTINUES = CLAUSES | STOPS | BRACKET_CLOSERS | frozenset("/&=%")


def visible(text: str, at: int, final: bool) -> int:
    """Offset of the next character that is not a space or a markdown mark; a newline counts. len(text) at the end, or NEED."""
    end = min(len(text), at + LONGEST_GAP)
    while at < end:
        char = text[at]
        if char in NEWLINES or not (char.isspace() or char in MARKS):
            return at
        at += 1
    return at if at < len(text) or final else NEED


def next_start(text: str, at: int, final: bool) -> int:
    """Where the next sentence would begin after a stop that ends before `at`: NEED, GOES_ON when none can, len(text) at the end."""
    for _ in range(4):
        at = visible(text, at, final)
        if at in (NEED, len(text)):
            return at
        char = text[at]
        if char in ":;":
            smiley = _smiley_end(text, at)
            if smiley == NEED:
                return len(text) if final else NEED
            if smiley == at:
                break
            at = smiley
            continue
        if char not in "'’\"”»":
            break
        if at + 1 == len(text):
            return len(text) if final else NEED
        follower = text[at + 1]
        if char == "'" and follower == "'":
            at += 2
        elif follower.isspace() or follower in CLAUSES or follower in STOPS:
            at += 1
        else:
            return at
    if char in ".…":
        return _dotted_start(text, at, final)
    return GOES_ON if char in _CONTINUES or char in NEWLINES else at


def _smiley_end(text: str, at: int) -> int:
    """`:)`, `;-)`: the end of a smiley at `at`, `at` itself when there is none, or NEED."""
    nose = at + 1 + (text[at + 1 : at + 2] in _NOSES and at + 1 < len(text))
    if nose >= len(text):
        return NEED
    if text[nose] not in _MOUTHS:
        return at
    if nose + 1 == len(text):
        return NEED
    return nose + 1 if text[nose + 1].isspace() else at


def _dotted_start(text: str, at: int, final: bool) -> int:
    """`.NET`, `...and then`: dots that begin something."""
    end = at
    while end < len(text) and text[end] in ".…" and end - at < 8:
        end += 1
    if end == len(text):
        return GOES_ON if final else NEED
    return at if text[end].isalnum() else GOES_ON


def word_at(text: str, at: int, final: bool) -> str | None:
    """The word that begins at or after `at`, openers skipped; None when more text is needed."""
    end = min(len(text), at + LONGEST_WORD)
    while at < end and text[at] in _SKIPPED_BEFORE_WORD:
        at += 1
    start = at
    while at < end and (text[at].isalpha() or text[at] in "'’"):
        at += 1
    return None if at == len(text) and not final and at < start + LONGEST_WORD else text[start:at]


def words_after(text: str, at: int, count: int, final: bool) -> list[str] | None:
    """The next words, at most `count`, up to any other character; None when more text is needed."""
    found: list[str] = []
    while len(found) < count:
        word = word_at(text, at, final)
        if word is None:
            return None
        if not word:
            break
        found.append(word)
        at = text.find(word, at) + len(word)
        if at < len(text) and text[at] == " ":
            at += 1
            continue
        break
    return found
