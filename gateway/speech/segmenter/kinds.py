"""What a word before a full stop is, as far as sentence ends go."""

from enum import Enum, auto


class Kind(Enum):
    PLAIN = auto()
    NEVER = auto()
    """Titles and `e.g.`: a sentence never ends here."""
    UNIT = auto()
    """`1990 г.` ends a sentence like FINAL, `г. Волгоград` never."""
    NUMBER_WORD = auto()
    """`No.`, `Fig.`: never before a number, otherwise like any word."""
    FINAL = auto()
    """`etc.`, `p.m.`, `Inc.`: ends a sentence before a capital."""
    MAYBE = auto()
    """`U.S.`, `Jr.`: ends a sentence only before a frequent first word."""
    INITIAL = auto()
    LETTERED = auto()
    """`vitamin C.`: a letter that is no initial."""
    ORDINAL = auto()
    MARKER = auto()
    """The number or letter of a list item or step."""
    EMPTY = auto()
