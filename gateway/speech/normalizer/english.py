"""What is said in English for abbreviations and codes, and the order in which all English rules look at a text."""

from __future__ import annotations

import re

from gateway.speech.normalizer.addresses import address_rules
from gateway.speech.normalizer.english_calendar import DATES, PHONES, TIMES, YEARS
from gateway.speech.normalizer.english_numbers import cardinal, digits, number, ordinal
from gateway.speech.normalizer.english_quantities import FRACTIONS, MATH, MONEY, NUMBERS, PERCENTS, RANGES, RATIOS, UNITS
from gateway.speech.normalizer.english_tables import COUNTED, STREETS, TITLES, WORDS
from gateway.speech.normalizer.rules import DASH, NUMBER, after, before, rule


def _any(words: dict[str, str]) -> str:
    return "(" + "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)) + ")"


def _ends(match: re.Match[str]) -> str:
    """The stop of an abbreviation also ends the sentence where nothing, or a capital, follows."""
    rest = after(match).lstrip(" \"'”’)*_\n")
    return "." if match[0].endswith(".") and not rest else ""


def _say_street(match: re.Match[str]) -> str | None:
    name = re.search(r"(\S+)\s\Z", before(match))
    if not name or not name[1][0].isupper():
        return None
    rest = after(match).lstrip(" ")
    ends = match[0].endswith(".") and (not rest or rest[0].isupper())
    return STREETS[match[1]] + ("." if ends else "")


def _say_counted(match: re.Match[str]) -> str:
    word, first, last = match.groups()
    return f"{COUNTED[word]} {number(first)}" + (f" to {number(last)}" if last else "")


def _say_dotted(match: re.Match[str]) -> str:
    parts = match[1].split(".")
    if len(parts) == 4:
        said = " dot ".join(digits(part) for part in parts)
    else:
        # Parts behind the first are short counters: 3.11.4 is read like a decimal.
        said = " point ".join([number(parts[0]), *(digits(part) for part in parts[1:])])
    return f"version {said}" if match[0][0] in "vV" else said


def _say_ordinal(match: re.Match[str]) -> str | None:
    digits_ = match[1].replace(",", "")
    return ordinal(int(digits_)) if len(digits_) <= 9 else None


# What follows these is a code, said digit by digit.
_CODE_CUE = re.compile(r"\b(?:password|passcode|PIN|pin|code|ZIP|zip|extension|ID|account number|serial number)(?: code)?(?: is|:)? \Z")
_CODES = (
    rule("codes", r"(?<![\w.])[vV]?(\d{1,3}(?:\.\d{1,3}){2,3})(?![\w]|\.\d)", _say_dotted),
    rule("codes", r"(?<![\w.])[vV](\d+(?:\.\d+)*)(?!\w|\.\d)", _say_dotted),
    rule("codes", rf"(?<![\w.&]){_any(COUNTED)}\s?({NUMBER})(?:{DASH}({NUMBER}))?(?!\w|\.\d)", _say_counted),
    rule("codes", r"(?<![\w.,])(\d{4,8})(?![\w,]|\.\d)", lambda m: digits(m[1]) if _CODE_CUE.search(before(m)) else None),
    rule("codes", r"(?<![\w.,])(0\d+|\d{9,})(?![\w,]|\.\d)", lambda m: digits(m[1])),
    rule("codes", r"(?<![\w.,])(\d)([KG])\b", lambda m: f"{number(m[1])} {m[2]}" if m[0] in ("4K", "8K", "3G", "4G", "5G", "6G") else None),
)
_ABBREVIATIONS = (
    rule("abbreviations", r"(?<=[a-z] )(St|Ave|Blvd|Rd|Ln|Jr|Sr)(?:\.|(?=[\s,]|\Z))", _say_street),
    rule("abbreviations", rf"\b{_any(TITLES)}\.(?=\s+(?:[A-Z]|and [A-Z]))", lambda m: TITLES[m[1]]),
    rule("abbreviations", rf"(?<![\w.]){_any(WORDS)}(?!\w)", lambda m: WORDS[m[1]] + _ends(m)),
    rule("abbreviations", r"\bw/ ?(?=[a-z])", "with "),
    rule("abbreviations", r"(?<=[a-z])/(?=[a-z]{2})", " "),
    rule("abbreviations", r"(?<=\w)\s?&\s?(?=\w)", " and "),
    rule("abbreviations", r"(?<![\w@])@(?=\w)", "at "),
    rule("abbreviations", r"(?<=\s)@(?=\s)", "at"),
    rule("abbreviations", r"(?<=\w)@(?=\w)", " at "),
    rule("abbreviations", r"\b([CFJ])#(?!\w)", lambda m: f"{m[1]} sharp"),
    rule("abbreviations", r"\bC\+\+(?!\w)", "C plus plus"),
    rule("abbreviations", r"\s?(?:→|⇒|->|=>)\s?", " to "),
)
_LISTS = (rule("numbers", r"(?:\A|(?<=\n))[ \t]*(\d{1,3})[.)]\s+(?=\S)", lambda m: f"{cardinal(int(m[1]))}, "),)
_ORDINALS = (rule("ordinals", r"(?<![\w.,])(\d{1,3}(?:,\d{3})+|\d+)(?:st|nd|rd|th)\b", _say_ordinal),)

ENGLISH = (
    *address_rules(" at ", " dot ", " dash "),
    *PHONES,
    *_LISTS,
    *DATES,
    *MONEY,
    *TIMES,
    *PERCENTS,
    *_CODES,
    *YEARS,
    *FRACTIONS,
    *UNITS,
    *RATIOS,
    *MATH,
    *_ORDINALS,
    *_ABBREVIATIONS,
    *RANGES,
    *NUMBERS,
)
