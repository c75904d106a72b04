"""Character classes that the sentence rules share.

Sets, not tables of all Unicode: a rule asks for the few characters of its kind, and `str` methods answer the rest.
"""

import re

HARD_STOPS = frozenset("。！？｡।॥۔؟።፧፨။។៕᠃։︒﹗﹖")
"""Never part of a number, a name or an address: decided by themselves where nothing is open."""
SOFT_STOPS = frozenset(".!?…‼⁇⁈⁉．")
STOPS = HARD_STOPS | SOFT_STOPS
CLAUSES = frozenset("，,；;：:、—–،؛၊፣፤፡")
NEWLINES = frozenset("\n\u2028\u2029")
BRACKETS = {
    "(": ")",
    "[": "]",
    "{": "}",
    "（": "）",
    "［": "］",
    "｛": "｝",
    "【": "】",
    "〔": "〕",
    "《": "》",
    "〈": "〉",
    "『": "』",
    "〖": "〗",
}
"""Openers and closers inside which no sentence ends."""
QUOTES = {"“": "”", "「": "」", "«": "»", "„": "“”", "‹": "›", "｢": "｣", "〝": "〞〟"}
BOOK_MARKS = frozenset("》〉』")
BRACKET_CLOSERS = frozenset(BRACKETS.values())
QUOTE_CLOSERS = frozenset("”」»“›｣〞〟«")
CLOSERS = BRACKET_CLOSERS | QUOTE_CLOSERS | frozenset("\"'’")
OPENERS = frozenset(BRACKETS) | frozenset(QUOTES) | frozenset("\"'‘¿¡")
MARKS = frozenset("*_~`")
"""Markdown marks: transparent to every rule."""
BULLETS = frozenset("-*+•·▪◦‣–—>#|")

_PAIRED = CLOSERS | frozenset(BRACKETS) | frozenset(QUOTES)


def interest(letters: str) -> re.Pattern[str]:
    """Every character at which anything may be decided: stops, newlines, pairs, and those given; others only lengthen the segment."""
    return re.compile("[" + re.escape("".join(sorted((STOPS | NEWLINES | _PAIRED | frozenset(letters)) - frozenset("'’")))) + "]")


def is_han(char: str) -> bool:
    """Han, kana, and the full-width marks between them: text written without spaces."""
    return "\u2e80" <= char <= "\u9fff" or "\uf900" <= char <= "\ufaff" or "\uff00" <= char <= "\uffef" or char >= "\U00020000"


def is_hangul(char: str) -> bool:
    return "\uac00" <= char <= "\ud7a3" or "\u1100" <= char <= "\u11ff"


def is_speakable(text: str) -> bool:
    """Whether any character would be heard: a letter, a digit, or a sign that is read out."""
    return any(char.isalnum() or char in "%@&°§$€£¥₩₹+=<>×÷" for char in text)
