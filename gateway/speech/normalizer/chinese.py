"""What is said in Chinese, and the order in which the rules look at a text."""

from __future__ import annotations

import re

from gateway.speech.normalizer.addresses import address_rules
from gateway.speech.normalizer.chinese_calendar import DATES, PHONES, RATIOS, TIMES
from gateway.speech.normalizer.chinese_numbers import counted, digits, number
from gateway.speech.normalizer.chinese_tables import CURRENCIES, IDENTIFIERS, MEASURES, UNITS, VULGAR
from gateway.speech.normalizer.rules import NUMBER, rule

_HAN = "\u4e00-\u9fff"
_DASH = r"\s?(?:[-‐‑–—−~～至])\s?"
# A minus belongs to the number where no word or number stands before it; of a measured value also behind a word (下降-2%).
_N = rf"((?<![\d.])(?:(?<![\w)\]%％])[-−])?{NUMBER})"
_MEASURED = rf"((?<![\d.])(?:(?<![A-Za-z\d)\]%％])[-−])?{NUMBER})"
_M = f"({NUMBER})"

_COUNTS = rf"\s?(?:[{MEASURES}]|小时|分钟|分之|星期|年(?!级|代|[0-9])|美元|欧元|英镑|日元|摄氏度)"

_SYMBOL = "(" + "|".join(re.escape(key) for key in sorted(CURRENCIES, key=len, reverse=True)) + r")\s?"
_SCALE = r"\s?(万亿|亿|千万|百万|万|千|[kKMB](?![A-Za-z]))?"
_SCALES = {"k": "千", "K": "千", "M": "百万", "B": "十亿"}

_UNIT = r"\s?(" + "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True)) + r")(?![A-Za-z0-9°²³])"

_POWERS = {"²": "的平方", "³": "的立方"}


def signed(written: str) -> str:
    """A number that may have a minus in front."""
    bare = written.lstrip("-−")
    return f"负{number(bare)}" if bare != written else number(bare)


def _percent(written: str) -> str:
    bare = written.lstrip("-−")
    said = "百分之百" if bare == "100" else f"百分之{number(bare)}"
    return f"负{said}" if bare != written else said


def _say_percents(match: re.Match[str]) -> str:
    return f"{_percent(match[1])}到{_percent(match[2])}"


def _say_money(match: re.Match[str]) -> str:
    currency, first, scale, second, last_scale = match.groups()
    said = number(first, keep_zeros=False) if second or "." in first or scale else counted(first)
    said += _SCALES.get(scale or "", scale or "")
    if second:
        said += f"到{number(second, keep_zeros=False)}{_SCALES.get(last_scale or '', last_scale or '')}"
    return said + CURRENCIES[currency]


def _say_unit(match: re.Match[str]) -> str:
    written, unit = match.groups()
    bare = written.lstrip("-−")
    if bare != written and unit in ("℃", "°C"):
        return f"零下{number(bare)}摄氏度"
    return ("负" if bare != written else "") + counted(bare) + UNITS[unit]


def _say_unit_range(match: re.Match[str]) -> str:
    return f"{signed(match[1])}到{counted(match[2])}{UNITS[match[3]]}"


def _say_thousands(match: re.Match[str]) -> str | None:
    # 8k is a sum, 4K a screen.
    whole, _, fraction = match[1].replace(",", "").partition(".")
    return number(whole + f"{fraction:0<3}") if len(fraction) <= 3 and whole.strip("0") else None


def _say_version(match: re.Match[str]) -> str:
    parts = match[2].split(".")
    if len(parts) == 4 and not match[1]:
        return "点".join(digits(part) for part in parts)
    return ("版本" if match[1] else "") + "点".join(digits(part, "一") if at else number(part) for at, part in enumerate(parts))


def _say_fraction(match: re.Match[str]) -> str | None:
    return f"{number(match[2])}分之{number(match[1])}" if int(match[2]) else None


def _number_in_list(match: re.Match[str]) -> str:
    mark = match[1]
    return f"{number(mark) if mark.isdigit() and mark.isascii() else number(str(ord(mark) - ord('①') + 1))}，"


_LISTS = (
    rule("numbers", r"(?:\A|(?<=\n))[ \t]*(\d{1,2})[.．)）]\s*(?!\d)(?=\S)", _number_in_list),
    rule("numbers", r"(?:\A|(?<=\n))[ \t]*([①-⑳])\s*", _number_in_list),
)
_MONEY = (
    rule("money", rf"(?<![A-Za-z]){_SYMBOL}{_M}{_SCALE}(?:{_DASH}[¥￥$€£]?{_M}{_SCALE})?(?![\d.]\d)", _say_money),
    rule("money", rf"{_N}(?=\s?(?:元|块|美元|欧元|英镑|港元))(?<=\.\d\d)", lambda m: number(m[1], keep_zeros=False)),
)
_PERCENTS = (
    rule("percents", rf"{_N}\s?[%％]?{_DASH}{_M}\s?[%％]", _say_percents),
    rule("percents", rf"{_MEASURED}\s?[%％]", lambda m: _percent(m[1])),
    rule("percents", rf"{_N}\s?‰", lambda m: f"千分之{number(m[1])}"),
)
_UNIT_RULES = (
    rule("units", rf"{_N}{_DASH}{_M}{_UNIT}", _say_unit_range),
    rule("units", rf"{_MEASURED}{_UNIT}", _say_unit),
)
_IDENTIFIED = "|".join(f"(?<={word})" for word in IDENTIFIERS)
_CODES = (
    rule("codes", r"(?<![A-Za-z0-9.])([vV]|版本\s?(?=\d+\.\d+\.))?(\d{1,3}(?:\.\d{1,3}){2,3})(?![\d]|\.\d)", _say_version),
    rule("codes", r"(?<![A-Za-z.])([vV])(\d+(?:\.\d+)?)(?![\d]|\.\d)", _say_version),
    rule("codes", r"(?<![A-Za-z])[Nn][Oo]\.?\s?(\d+)(?!\d|\.\d)", lambda m: f"第{number(m[1])}"),
    rule("codes", r"#(\d+)(?!\d)", lambda m: f"{number(m[1])}号"),
    rule("codes", rf"(?:{_IDENTIFIED})([是为：:\s]{{0,2}})(\d{{3,}})(?!\d|\.\d)", lambda m: m[1].replace(":", "：") + digits(m[2])),
    rule("codes", r"(?<![\d.,])(\d{3,4})(?=室|房间|号房|病房|教室|房(?![价租贷子]))", lambda m: digits(m[1])),
    rule("codes", r"(?<![\d.,])(985|211)(?=高校|大学|院校|工程|[、/和，])", lambda m: digits(m[1], "一").replace("二一一", "二幺幺")),
    rule("codes", r"(?<![\w])996(?=工作|模式|[，。！？、的了吗]|\Z)", "九九六"),
    rule("codes", r"(?<=[A-Z]{2})(\d{3,4})(?![\w.])", lambda m: digits(m[1])),
    rule("codes", r"(?<![\d.,])(0\d+|\d{9,})(?![\d,]|\.\d)", lambda m: digits(m[1])),
)
_FRACTIONS = (
    rule("fractions", r"(?<![A-Za-z\d/.])(\d{1,4})/(\d{1,4})(?![\d/]|\.\d)", _say_fraction),
    rule("fractions", "([" + "".join(VULGAR) + "])", lambda m: VULGAR[m[1]]),
)
_MATH = (
    rule("math", r"(?<=[\w)²³])\s*×\s*(?=[\w(√-])|(?<=\d)\s?[*xX]\s?(?=\d)", "乘"),
    rule("math", r"(?<=[\w)²³])\s*÷\s*(?=[\w(])|(?<=\d)\s/\s(?=\d)", "除以"),
    rule("math", r"(?<=[A-Za-z\d)²³])\s?\+\s?(?=[A-Za-z\d(√])", "加"),
    rule("math", r"(?<=[A-Za-z\d)])\s?[-−]\s?(?=[\d.]+\s?[=＝])", "减"),
    rule("math", r"(?<=[\w)²³%])\s*[=＝]\s*(?=[\w(√±−-])", "等于"),
    rule("math", r"\s?(?:≤|<=)\s?(?=[\w-])", "小于等于"),
    rule("math", r"\s?(?:≥|>=)\s?(?=[\w-])", "大于等于"),
    rule("math", r"\s?(?:≠|!=)\s?(?=[\w-])", "不等于"),
    rule("math", r"(?<=[A-Za-z\d)])\s?[<＜]\s?(?=[\w-])", "小于"),
    rule("math", r"(?<=[A-Za-z\d)])\s?[>＞]\s?(?=[\w-])", "大于"),
    rule("math", r"\s?≈\s?(?=[\w-])", "约等于"),
    rule("math", r"(?<=[\w)])\^(\d+)", lambda m: f"的{number(m[1])}次方"),
    rule("math", r"(?<=[\w)])([²³])", lambda m: _POWERS[m[1]]),
    rule("math", r"√\s?(?=[\w(])", "根号"),
    rule("math", r"±\s?", "正负"),
    rule("math", r"(?<![A-Za-z\d])[~～]\s?(?=\d)", "约"),
    rule("math", r"(?<=\d)\+(?![\w+])", "加"),
    rule("math", r"(?<![A-Za-z])C\+\+(?![A-Za-z\d])", "C加加"),
)
_WORDS = (
    rule("abbreviations", r"(?<![A-Za-z])([CFJ])#(?![A-Za-z\d])", lambda m: f"{m[1]} sharp"),
    rule("abbreviations", r"\s?&\s?(?=\w)", "和"),
    rule("abbreviations", r"\s?(?:→|⇒|->|=>)\s?(?=\S)", "到"),
)
_RANGES = (
    rule("ranges", rf"(?<![\d.,/-]){_M}{_DASH}{_M}(?={_COUNTS})", lambda m: f"{counted(m[1])}到{counted(m[2])}"),
    rule("ranges", rf"(?<![\d.,/A-Za-z-]){_M}{_DASH}{_M}(?![\d/A-Za-z]|[-.,]\d)", lambda m: f"{number(m[1])}到{number(m[2])}"),
)
_SPACE_BEFORE, _SPACE_BEHIND = rf"(?:(?<=[{_HAN}，。、：])\s)?", rf"(?:\s(?=[{_HAN}]))?"
_NUMBERS = (
    rule("numbers", rf"{_N}[kK](?![A-Za-z\d])", lambda m: None if m[0] in ("4K", "8K", "2K") else _say_thousands(m)),
    rule("numbers", rf"(?<!第)(?<![\d.A-Za-z_-]){_SPACE_BEFORE}2(?={_COUNTS})", "两"),
    rule("numbers", rf"{_SPACE_BEFORE}{_N}{_SPACE_BEHIND}(?![\d]|\.\d)", lambda m: signed(m[1])),
)

CHINESE = (
    *address_rules("艾特", "点", " "),
    *PHONES,
    *_LISTS,
    *DATES,
    *_MONEY,
    *RATIOS,
    *TIMES,
    *_PERCENTS,
    *_CODES,
    *_UNIT_RULES,
    *_FRACTIONS,
    *_MATH,
    *_WORDS,
    *_RANGES,
    *_NUMBERS,
)
