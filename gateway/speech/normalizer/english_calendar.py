"""Dates, years, times of day and phone numbers in English."""

from __future__ import annotations

import re

from gateway.speech.normalizer.english_numbers import cardinal, digits, ordinal, plural, year
from gateway.speech.normalizer.rules import DASH, after, before, rule


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_SHORT = {name[:3]: name for name in _MONTHS} | {"Sept": "September"} | {name: name for name in _MONTHS}
_MONTH = "(" + "|".join(sorted(_SHORT, key=len, reverse=True)) + r")\b\.?"
_YEAR = r"(1\d{3}|20\d{2})(?![\d%]|[.,:]\d)"
_DAY = r"(3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?(?![\d:%]|[.,]\d|st|nd|rd|th)"
_CLOCK = r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?(?:\s?([AaPp])\.?[Mm]\b\.?)?(?![\d:])"
_HOUR = r"(1[0-2]|0?[1-9])\s?([AaPp])\.?[Mm]\b\.?"

# Words in front of which four digits are a year, and words behind which they count things.
_YEAR_CUES = _set(
    """
    in since by until till from of year before after around circa during through to late early mid spring summer fall autumn winter
    class the between and back founded born copyright january february march april may june july august september october november december
    """
)
_COUNTED = _set("people words men women children feet percent dollars euros million thousand more different other times")
_VERBS = _set("was is has as this")


def _day(text: str) -> str:
    return ordinal(int(text))


def _say_month_day(match: re.Match[str]) -> str:
    month, day, last, year_ = match.groups()
    said = f"{_SHORT[month]} {_day(day)}" + (f" to {_day(last)}" if last else "")
    return f"{said}, {year(int(year_))}" if year_ else said


def _say_day_month(match: re.Match[str]) -> str:
    article, day, month, year_ = match.groups()
    said = f"{article or 'the '}{_day(day)} of {_SHORT[month]}"
    return f"{said}, {year(int(year_))}" if year_ else said


def _dated(year_: str, month: str, day: str) -> str | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    return f"{_MONTHS[int(month) - 1]} {ordinal(int(day))}, {year(int(year_))}"


def _say_slashed(match: re.Match[str]) -> str | None:
    first, second, year_ = match.groups()
    # American order, unless only the other one is a date.
    return _dated(year_, first, second) or _dated(year_, second, first)


def _say_month_and_day(match: re.Match[str]) -> str | None:
    month, day = int(match[1]), int(match[2])
    return f"{_MONTHS[month - 1]} {ordinal(day)}" if 1 <= month <= 12 and 1 <= day <= 31 else None


def _clock(hour: str, minute: str, second: str | None, half: str | None) -> str | None:
    hour_, minute_ = int(hour), int(minute)
    if second and not half:
        parts = ((hour_, "hour"), (minute_, "minute"), (int(second), "second"))
        return " ".join(f"{cardinal(n)} {unit}{'' if n == 1 else 's'}" for n, unit in parts if n) or "zero seconds"
    if hour_ > (12 if half else 24):
        return None
    if minute_ == 0:
        rest = "" if half else " o'clock" if 1 <= hour_ <= 12 else " hundred"
    else:
        rest = f" {'oh ' if minute_ < 10 else ''}{cardinal(minute_)}"
    seconds = f" and {cardinal(int(second))} seconds" if second else ""
    return cardinal(hour_) + rest + seconds + (f" {half.upper()}M" if half else "")


def _stop(match: re.Match[str]) -> str:
    """The stop of `p.m.` also ends the sentence where nothing follows."""
    return "." if match[0].endswith(".") and not after(match).strip(" \"'”’)*_\n") else ""


def _say_clocks(match: re.Match[str]) -> str | None:
    groups = match.groups()
    first = _clock(*groups[:4])
    if first is None:
        return None
    if groups[4] is None:
        return first + _stop(match)
    second = _clock(*groups[4:])
    return f"{first} to {second}{_stop(match)}" if second else None


def _say_hours(match: re.Match[str]) -> str:
    first, half, second, other = match.groups()
    said = f"{cardinal(int(first))} {half.upper()}M"
    return said + (f" to {cardinal(int(second))} {other.upper()}M" if second else "") + _stop(match)


def _say_year(match: re.Match[str]) -> str | None:
    ahead = before(match)
    cue = re.search(r"([A-Za-z]+)[ ,'(]*\Z", ahead)
    behind = re.match(r"\s+([A-Za-z]+)", after(match))
    following = behind[1] if behind else ""
    if following in _COUNTED or (following.endswith("s") and following.islower() and following not in _VERBS):
        return None
    number = int(match[1])
    is_cued = cue is not None and cue[1].lower() in _YEAR_CUES
    stands_alone = not ahead.strip() or not following or following[0].isupper()
    return year(number) if is_cued or (1900 <= number <= 2099 and stands_alone) else None


def _say_years(match: re.Match[str]) -> str | None:
    first, second = int(match[1]), int(match[2])
    if not 1000 <= first <= 2099:
        return None
    if len(match[2]) == 2:
        return f"{year(first)} to {cardinal(second)}" if second > first % 100 and first >= 1900 else None
    return f"{year(first)} to {year(second)}" if first < second else None


def _say_decade(match: re.Match[str]) -> str:
    number = int(match[1])
    return plural(year(number) if number >= 1000 else cardinal(number))


def _say_short_decade(match: re.Match[str]) -> str:
    return plural(cardinal(int(re.sub(r"\D", "", match[0]))))


def _say_phone(match: re.Match[str]) -> str:
    groups = re.findall(r"\d+", match[0])
    said = ", ".join(digits(group) for group in groups)
    return f"plus {said}" if match[0].startswith("+") else said


PHONES = (
    rule("phones", r"(?<![\w+])\+\d{1,3}(?:[ .-]?\(?\d{1,4}\)?){2,5}(?!\w|[-.]\d)", _say_phone),
    rule("phones", r"(?<![\w.-])(?:1[ .-])?(?:\(\d{3}\)\s?|\d{3}[ .-])\d{3}[.-]\d{4}(?!\w|[-.]\d)", _say_phone),
    rule("phones", r"(?<![\w.,-])\d{3}-\d{4}(?!\w|[-.,]\d)", _say_phone),
    rule("phones", r"(?<=[Dd]ial )\d{3}\b|(?<=[Cc]all )[91]11\b", _say_phone),
)

DATES = (
    rule("dates", r"(?<![\w/.-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\w/]|[-.]\d)", lambda m: _dated(m[1], m[3], m[4])),
    rule("dates", r"(?<![\w/.-])(\d{1,2})/(\d{1,2})/(\d{4})(?![\w/])", _say_slashed),
    rule("dates", rf"\b{_MONTH}\s+{_DAY}(?:{DASH}{_DAY})?(?:,?\s+{_YEAR})?", _say_month_day),
    rule("dates", rf"(?<![\w.,:/$-])([Tt]he )?{_DAY}\s+(?:of\s+)?{_MONTH}(?:,?\s+{_YEAR})?", _say_day_month),
    rule("dates", rf"\b{_MONTH},?\s+{_YEAR}", lambda m: f"{_SHORT[m[1]]} {year(int(m[2]))}"),
    rule("dates", r"(?<=\b(?:on|by) )(\d{1,2})/(\d{1,2})(?![\w/])", _say_month_and_day),
)

YEARS = (
    rule("years", rf"(?<![\w.,$€£#/-])(1\d{{3}}|20\d\d){DASH}(\d{{4}}|\d{{2}})(?![\w/%]|[-.,]\d)", _say_years),
    rule("years", r"(?<![\w.,$€£#])(1[0-9]\d0|20\d0)'?s\b", _say_decade),
    rule("years", r"(?<!\w)['’][1-9]0s\b", _say_short_decade),
    rule("years", r"(?<=\b(?:the|his|her|mid) )[1-9]0s\b", _say_short_decade),
    rule("years", r"(?<![\w.,$€£#/:×*+=^-])(1[1-9]\d\d|20\d\d)(?![\w%°/:×*^²³]|[.,]\d|-\d)", _say_year),
)

TIMES = (
    rule("times", r"\b24/7\b", "twenty-four seven"),
    rule("times", rf"(?<![\w.,:]){_CLOCK}(?:{DASH}{_CLOCK})?", _say_clocks),
    rule("times", rf"(?<![\w.,:$]){_HOUR}(?:{DASH}{_HOUR})?", _say_hours),
)
