"""Chinese number words."""

from __future__ import annotations

_DIGITS = "零一二三四五六七八九"
_UNITS = ("", "十", "百", "千")
_GROUPS = ("", "万", "亿", "万亿")
_LONGEST = 16  # digits; longer numbers are read digit by digit


def digits(text: str, one: str = "幺") -> str:
    """Digit by digit; in a number that identifies, 1 is said 幺."""
    return "".join(one if ch == "1" else _DIGITS[int(ch)] for ch in text if ch.isdecimal())


def cardinal(number: int) -> str:
    """一百零五, 十五, 两千, 一万零八十六."""
    if number < 10:
        return _DIGITS[number]
    if number >= 10**_LONGEST:
        return digits(str(number), "一")
    groups = []
    while number:
        number, group = divmod(number, 10_000)
        groups.append(group)
    said = ""
    for scale in range(len(groups) - 1, -1, -1):
        group = groups[scale]
        if not group:
            continue
        if said and group < 1000:
            said += "零"
        said += _two(_group(group), scale) + _GROUPS[scale]
    return said[1:] if said.startswith("一十") else said


def _two(words: str, scale: int) -> str:
    return "两" if words == "二" and scale else words


def _group(number: int) -> str:
    """The words of a number below ten thousand: 两 in front of 千, 二 elsewhere."""
    said, skipped = "", False
    for place in (3, 2, 1, 0):
        digit = number // 10**place % 10
        if not digit:
            skipped = bool(said)
            continue
        said += ("零" if skipped else "") + ("两" if digit == 2 and place == 3 else _DIGITS[digit]) + _UNITS[place]
        skipped = False
    return said


def number(written: str, keep_zeros: bool = True) -> str:
    """`1,234.5` in words; a leading zero is read digit by digit. Zeros at the end of a fraction may be dropped."""
    whole, point, fraction = written.replace(",", "").partition(".")
    if not keep_zeros:
        fraction = fraction.rstrip("0")
    plain = len(whole) <= _LONGEST and not (len(whole) > 1 and whole[0] == "0")
    words = cardinal(int(whole or "0")) if plain else digits(whole, "一")
    return f"{words}点{digits(fraction, '一')}" if point and fraction else words


def counted(written: str) -> str:
    """A number in front of a measure word: two is 两."""
    return "两" if written == "2" else number(written)
