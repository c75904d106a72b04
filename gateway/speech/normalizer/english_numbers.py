"""English number words: American, without "and", tens joined with a hyphen."""

from __future__ import annotations

_ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES = ["", "thousand", "million", "billion", "trillion", "quadrillion"]
_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_LONGEST = 3 * len(_SCALES)  # digits; longer numbers are read digit by digit


def cardinal(number: int) -> str:
    """The words of a number that is not negative."""
    if number >= 10**_LONGEST:
        return digits(str(number))
    if number < 1000:
        return _below_thousand(number)
    parts, scale = [], 0
    while number:
        number, group = divmod(number, 1000)
        if group:
            parts.append(f"{_below_thousand(group)} {_SCALES[scale]}".strip())
        scale += 1
    return " ".join(reversed(parts))


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    if not hundreds:
        return _below_hundred(rest)
    return f"{_ONES[hundreds]} hundred" + (f" {_below_hundred(rest)}" if rest else "")


def _below_hundred(number: int) -> str:
    if number < 20:
        return _ONES[number]
    tens, ones = divmod(number, 10)
    return _TENS[tens] + (f"-{_ONES[ones]}" if ones else "")


def ordinal(number: int) -> str:
    """first, twenty-second, one hundredth."""
    words = cardinal(number)
    cut = max(words.rfind(" "), words.rfind("-")) + 1
    head, last = words[:cut], words[cut:]
    if last in _ORDINALS:
        return head + _ORDINALS[last]
    return head + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def digits(text: str, zero: str = "zero") -> str:
    """Digit by digit; anything else is left out."""
    return " ".join(zero if ch == "0" else _ONES[int(ch)] for ch in text if ch.isdecimal())


def number(written: str) -> str:
    """`1,234.5` in words; a leading zero or more digits than have a name are read digit by digit."""
    whole, point, fraction = written.replace(",", "").partition(".")
    is_code = len(whole) > _LONGEST or (len(whole) > 1 and whole[0] == "0")
    words = digits(whole) if is_code else cardinal(int(whole)) if whole else ""
    return f"{words} point {digits(fraction)}".strip() if point and fraction else words


def is_one(written: str) -> bool:
    """Whether a noun after the number is singular."""
    return written == "1"


def hundreds(number_: int) -> str | None:
    """fifteen hundred: how round numbers of four digits are said; None for others."""
    return f"{cardinal(number_ // 100)} hundred" if 1100 <= number_ <= 9900 and number_ % 100 == 0 and number_ % 1000 else None


def year(number_: int) -> str:
    """nineteen eighty-four, two thousand five, twenty twenty-four."""
    first, last = divmod(number_, 100)
    if 2000 <= number_ < 2010 or number_ % 1000 == 0:
        return cardinal(number_)
    if last == 0:
        return f"{cardinal(first)} hundred"
    return f"{cardinal(first)} {'oh ' if last < 10 else ''}{cardinal(last)}"


def plural(words: str) -> str:
    """nineties, two thousands: the last word in the plural."""
    return words[:-1] + "ies" if words.endswith("y") else words + "s"
