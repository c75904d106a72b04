"""Dates, years, times of day, scores and phone numbers in Chinese."""

from __future__ import annotations

import re

from gateway.speech.normalizer.chinese_numbers import cardinal, counted, digits, number
from gateway.speech.normalizer.rules import after, before, rule

_DASH = r"\s?[-–—~～至到]\s?"
_CLOCK = r"(\d{1,2})[:：]([0-5]\d)(?:[:：]([0-5]\d))?(?![\d:：])"
_RATIO_CUES = re.compile(r"比分|比例|比率|比值|按|以|配比|战胜|获胜|击败|取胜|负于|战平|打平|逼平|领先|落后|宽高|画面|屏幕|混合|赢|输|胜")


def _year(text: str) -> str:
    return digits(text, "一")


def _say_date(match: re.Match[str]) -> str | None:
    year, _, month, day = match.groups()
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    return f"{_year(year)}年{cardinal(int(month))}月{cardinal(int(day))}日"


def _say_year(match: re.Match[str]) -> str | None:
    # A round number of years ago is a span of time.
    if match[1].endswith("00") and re.match(r"年(?:前|以前|之前|来|的历史|历史|后)", after(match)):
        return None
    return _year(match[1])


def _clock(hour: str, minute: str, second: str | None) -> str | None:
    if int(hour) > 24:
        return None
    said = counted(str(int(hour))) + "点"
    if int(minute) or second:
        said += ("零" if 0 < int(minute) < 10 else "") + cardinal(int(minute)) + "分"
    return said + (("零" if 0 < int(second) < 10 else "") + cardinal(int(second)) + "秒" if second else "")


def _say_clocks(match: re.Match[str]) -> str | None:
    first = _clock(match[1], match[2], match[3])
    if first is None or match[4] is None:
        return first
    second = _clock(match[4], match[5], match[6])
    return f"{first}到{second}" if second else None


def _say_ratio(match: re.Match[str]) -> str | None:
    if len(match[2]) == 2 and not _RATIO_CUES.search(before(match) + after(match)):
        return None
    return f"{number(match[1])}比{number(match[2])}"


def _say_score(match: re.Match[str]) -> str | None:
    return f"{number(match[1])}比{number(match[2])}" if _RATIO_CUES.search(before(match) + after(match)) else None


def _say_phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    said = "，".join(digits(group) for group in groups)
    return f"加{said}" if match[0].startswith("+") else said


def _say_mobile(match: re.Match[str]) -> str:
    plain = re.sub(r"\D", "", match[0])
    return "，".join(digits(part) for part in (plain[:3], plain[3:7], plain[7:]))


PHONES = (
    rule("phones", r"(?<!\d)\+\d{1,3}(?:[ -]?\d{2,4}){2,5}(?!\d)", _say_phone),
    rule("phones", r"(?<![\d.])1[3-9]\d[ -]?\d{4}[ -]?\d{4}(?![\d.]\d|\d)", _say_mobile),
    rule("phones", r"(?<![\d.-])\d{3}-\d{3}-\d{4}(?![\d-])", _say_phone),
    rule("phones", r"(?<![\d.])(?:0\d{2,3}|400|800)-\d{3,4}-?\d{4}(?!\d)", _say_phone),
    rule("phones", r"(?:(?<=打)|(?<=拨)|(?<=呼叫)|(?<=热线)|(?<=客服))\s?(?:11\d|12[02]|911|12\d{3}|1\d{4}|9[56]\d{3})(?!\d)", _say_phone),
)
DATES = (
    rule("dates", r"(?<![\d/.-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\d/]|[-.]\d)", _say_date),
    rule("years", r"(?<!\d)([12]\d{3})" + _DASH + r"([12]\d{3})(?=\s?年)", lambda m: f"{_year(m[1])}到{_year(m[2])}"),
    rule("years", r"(?<!\d)(?<!公元前)(?<!第)([12]\d{3})\s?(?=年(?!级))", _say_year),
    rule("years", r"(?<!\d)([5-9]\d|0\d|1[0-9]|2[0-9])(?=年(?:[春夏秋冬初底末]|出生|毕业|生|\d{1,2}月))", lambda m: _year(m[1])),
    rule("years", r"(?<!\d)([0-9]0)(?=后(?!\d|天|分|秒|小|个|来|续))", lambda m: _year(m[1])),
    rule("years", r"(?<!\d)00(?=年代)", "零零"),
)
RATIOS = (
    rule("ratios", r"(?<![\d.:：])(\d{1,3})[:：](\d{1,3})(?![\d:：]|\.\d)", _say_ratio),
    rule("ratios", r"(?<![\d.-])(\d{1,2})-(\d{1,2})(?![\d-]|\.\d|[年月日号天岁个%℃])", _say_score),
)
TIMES = (rule("times", rf"(?<![\d:：.]){_CLOCK}(?:{_DASH}{_CLOCK})?", _say_clocks),)
