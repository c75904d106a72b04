"""Money, percentages, units, ranges, fractions and arithmetic in English."""

from __future__ import annotations

import re

from gateway.speech.normalizer.english_numbers import cardinal, hundreds, is_one, number, ordinal, plural
from gateway.speech.normalizer.english_tables import CURRENCIES, UNIT_NAMES, VULGAR
from gateway.speech.normalizer.rules import DASH, NUMBER, after, before, rule

_SIGN = r"(?:(?<![\w)\]])[-−–])?"
_N = rf"(?<![\w.])({_SIGN}{NUMBER})"
_M = f"({NUMBER})"

_SCALE = r"\s?(k|K|m|M|bn|b|B|thousand|million|billion|trillion)\b"
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion"}
_SYMBOL = "(" + "|".join(re.escape(key) for key in sorted(CURRENCIES, key=len, reverse=True)) + r")\s?"

_UNIT = r"[\s-]?(" + "|".join(re.escape(unit) for unit in sorted(UNIT_NAMES, key=len, reverse=True)) + r")(?![\w°²³])"
_UNCHANGED = frozenset(("hertz", "kilohertz", "megahertz", "gigahertz"))

_PARTS = {2: ("half", "halves"), 4: ("quarter", "quarters")}


def signed(written: str) -> str:
    """A number that may have a minus in front."""
    bare = written.lstrip("-−–")
    return f"minus {number(bare)}" if bare != written else number(bare)


def _is_attribute(match: re.Match[str]) -> bool:
    """`a 10 cm gap`: a measure in front of its noun is singular."""
    return bool(re.search(r"\b[Aa]n?\s$", before(match)) and re.match(r"\s[a-z]", after(match)))


def _money(currency: str, amount: str, scale: str | None, attribute: bool) -> str:
    one, many, cent, cents = CURRENCIES[currency]
    whole, _, fraction = amount.replace(",", "").partition(".")
    if scale:
        return f"{number(amount)} {_SCALES.get(scale.lower(), scale)} {one if attribute else many}"
    name = one if whole == "1" or attribute else many
    if not fraction:
        return f"{number(whole)} {name}"
    if len(fraction) != 2 or not cent:
        return f"{number(amount)} {many}"
    part = f"{cardinal(int(fraction))} {cent if fraction == '01' else cents}"
    if fraction == "00":
        return f"{number(whole)} {name}"
    return part if whole in ("", "0") else f"{number(whole)} {name} and {part}"


def _say_money(match: re.Match[str]) -> str:
    minus, currency, first, scale, second, last_scale = match.groups()
    said = "minus " if minus else ""
    if second is None:
        return said + _money(currency, first, scale, _is_attribute(match))
    head = number(first) + (f" {_SCALES.get(scale.lower(), scale)}" if scale else "")
    return f"{said}{head} to {_money(currency, second, last_scale, False)}"


def _say_money_after(match: re.Match[str]) -> str:
    return _money(match[2], match[1], None, _is_attribute(match))


def _say_percents(match: re.Match[str]) -> str:
    first, own, second = match.groups()
    return f"{signed(first)}{' percent' if own else ''} to {number(second)} percent"


def _unit(written: str, singular: bool) -> str:
    name = UNIT_NAMES[written]
    if singular or name in _UNCHANGED:
        return name
    head, per, rest = name.partition(" per ")
    if head.startswith("degree"):
        return "degrees" + head[len("degree") :]
    return (head[: -len("foot")] + "feet" if head.endswith("foot") else plural_noun(head)) + per + rest


def plural_noun(word: str) -> str:
    """The plural of a unit."""
    return word + ("es" if word.endswith(("ch", "s")) else "s")


def _say_unit(match: re.Match[str]) -> str:
    amount, unit = match.groups()
    hyphen = match[0][len(amount) : len(amount) + 1] == "-"
    return f"{signed(amount)} {_unit(unit, is_one(amount.lstrip('-−–')) or hyphen or _is_attribute(match))}"


def _say_unit_range(match: re.Match[str]) -> str:
    return f"{signed(match[1])} to {number(match[2])} {_unit(match[3], False)}"


def _fraction(top: int, bottom: int) -> str:
    one, many = _PARTS.get(bottom, (ordinal(bottom), plural(ordinal(bottom))))
    return f"{cardinal(top)} {one if top == 1 else many}"


def _say_fraction(match: re.Match[str]) -> str | None:
    top, bottom = int(match[1]), int(match[2])
    if bottom in (10, 100) and top <= bottom:
        return f"{cardinal(top)} out of {cardinal(bottom)}"
    if bottom and top < bottom <= 100 and len(match[1]) <= 2:
        return _fraction(top, bottom)
    return f"{number(match[1])} over {number(match[2])}" if bottom else None


def _say_part_of_unit(match: re.Match[str]) -> str | None:
    top, bottom = int(match[1]), int(match[2])
    return f"{_fraction(top, bottom)} {_unit(match[3], True)}" if top < bottom else None


def _say_mixed(match: re.Match[str]) -> str | None:
    top, bottom = int(match[2]), int(match[3])
    if not 0 < top < bottom:
        return None
    part = _fraction(top, bottom)
    return f"{number(match[1])} and {part.replace('one half', 'a half')}"


def _say_vulgar(match: re.Match[str]) -> str:
    part = _fraction(*VULGAR[match[2]])
    return f"{number(match[1])} and {part.replace('one half', 'a half')}" if match[1] else part


def _dimension(written: str) -> str:
    # Resolutions are said in pairs: nineteen twenty.
    value = int(written) if written.isdigit() else 0
    if 1000 <= value <= 9999 and value % 1000:
        return f"{cardinal(value // 100)} {cardinal(value % 100)}" if value % 100 >= 10 else cardinal(value)
    return number(written)


def _say_size(match: re.Match[str]) -> str:
    return f"{_dimension(match[1])} by {_dimension(match[2])}" + (f" by {_dimension(match[3])}" if match[3] else "")


def _say_number(match: re.Match[str]) -> str:
    bare = match[1].lstrip("-−–")
    round_ = hundreds(int(bare)) if bare.isdigit() and len(bare) == 4 else None
    said = round_ or number(bare)
    return f"minus {said}" if bare != match[1] else said


def _say_counted(match: re.Match[str]) -> str:
    return f"{number(match[1])} {_SCALES[match[2].lower()]}"


MONEY = (
    rule("money", rf"(?<!\w)([-−–])?{_SYMBOL}{_M}(?:{_SCALE})?(?:{DASH}(?:[$€£¥￥])?{_M}(?:{_SCALE})?(?!\w|[-/]\d))?(?![\d])", _say_money),
    rule("money", rf"{_N}\s?(€|£|USD|EUR|GBP|RMB|CNY|JPY)(?!\w)", _say_money_after),
    rule("money", r"(?<=\d)/(?=(?:hour|day|week|month|year|person|night|kg|user|minute)\b)", " per "),
)
PERCENTS = (
    rule("percents", rf"{_N}(\s?[%％])?{DASH}{_M}\s?[%％]", _say_percents),
    rule("percents", rf"{_N}\s?[%％]", lambda m: f"{signed(m[1])} percent"),
    rule("percents", r"(?<=\s)%(?=\s)", "percent"),
)
UNITS = (
    rule("units", r"(?<![\w.])(\d)['′](\d{1,2})(?:[\"″]|'')", lambda m: f"{number(m[1])} foot {number(m[2])}"),
    rule("units", rf"{_N}{DASH}{_M}{_UNIT}", _say_unit_range),
    rule("units", rf"{_N}{_UNIT}", _say_unit),
)
RATIOS = (rule("ratios", r"(?<![\w.:])(\d{1,3}):(\d{1,3})(?![\w:]|\.\d)", lambda m: f"{number(m[1])} to {number(m[2])}"),)
FRACTIONS = (
    rule("fractions", rf"(?<![\w.,/])(\d{{1,2}})/(\d{{1,2}}){_UNIT}", _say_part_of_unit),
    rule("fractions", r"(?<![\w.,/])(\d{1,3}) (\d{1,2})/(\d{1,3})(?![\w/]|\.\d)", _say_mixed),
    rule("fractions", r"(?<![\w.,/])(\d{1,4})/(\d{1,4})(?![\w/]|\.\d)", _say_fraction),
    rule("fractions", r"(?<![\w.,])(\d{1,3})?\s?([" + "".join(VULGAR) + "])", _say_vulgar),
)
MATH = (
    rule(
        "math",
        r"(?<![\w.])(\d+(?:\.\d+)?)[xX×](\d+(?:\.\d+)?)(?:[xX×](\d+(?:\.\d+)?))?(?!\w)",
        lambda m: None if "×" in m[0] and len(m[0]) < 5 else _say_size(m),
    ),
    rule("math", r"(?<=\d)\s[xX]\s(?=\d)|(?<=[\w)²³])\s*×\s*(?=[\w(√.-])|(?<=\d)\s?\*\s?(?=\d)", " times "),
    rule("math", r"(?<=[\w)²³])\s*÷\s*(?=[\w(])|(?<=\d)\s/\s(?=\d)", " divided by "),
    rule("math", r"(?<=[\w)²³])\s\+\s(?=[\w(√-])|(?<=\d)\+(?=\d)", " plus "),
    rule("math", r"(?<=\w)\s[-−–]\s(?=\d[\d.,]*\s?=)", " minus "),
    rule("math", r"(?<=[\w)²³%])\s*[=＝]\s*(?=[\w(√$±.−-])", " equals "),
    rule("math", r"(?<=[\w)])\s*(?:≤|<=)\s*(?=[\w(-])", " is less than or equal to "),
    rule("math", r"(?<=[\w)])\s*(?:≥|>=)\s*(?=[\w(-])", " is greater than or equal to "),
    rule("math", r"(?<=[\w)])\s*(?:≠|!=)\s*(?=[\w(-])", " does not equal "),
    rule("math", r"(?<=[\w)])\s<\s(?=[\w(-])|(?<=\d)<(?=\d)", " is less than "),
    rule("math", r"(?<=[\w)])\s>\s(?=[\w(-])|(?<=\d)>(?=\d)", " is greater than "),
    rule("math", r"(?<=[\w)])\s≈\s(?=[\w(-])", " is about "),
    rule("math", r"[≈~～]\s?(?=[$€£]?\d)", "about "),
    rule("math", r"(?<=[\w)])\^(?=[\w(])", " to the power of "),
    rule("math", r"(?<=[A-Za-z\d)])²", " squared"),
    rule("math", r"(?<=[A-Za-z\d)])³", " cubed"),
    rule("math", r"√\s?(?=[\w(])", "the square root of "),
    rule("math", r"(?<=\w)\s?±\s?(?=\d)", " plus or minus "),
    rule("math", r"±\s?", "plus or minus "),
    rule("math", r"(?<![\w)])\+(?=\d)", "plus "),
    rule("math", r"(?<=\d)\+(?!\w)|(?<=\b[A-F])\+(?![\w+])", " plus"),
    rule("math", r"(?<=[A-Za-z])\+(?=[A-Za-z\d]\b)", " plus "),
)
RANGES = (rule("ranges", rf"(?<![\w.,/-])(?<!\d[-–]){_M}[-‐‑–—−~～]{_M}(?![\w/]|[-–.,]\d)", lambda m: f"{number(m[1])} to {number(m[2])}"),)
NUMBERS = (
    rule("numbers", rf"{_N}(k|K|M|bn)(?!\w)", lambda m: None if m[0] in ("4K", "8K") else _say_counted(m)),
    rule("numbers", rf"{_N}x(?!\w)", lambda m: f"{signed(m[1])} times"),
    rule("numbers", rf"{_N}(?![^\W²³]|\.\d|,\d{{3}}\b)", _say_number),
)
