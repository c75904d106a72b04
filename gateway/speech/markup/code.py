"""Fenced and inline code."""

from __future__ import annotations

import re

from gateway.speech.markup.pieces import Found, Mode, Need, Place, Verdict

_INLINE_LIMIT = 120  # characters; an unclosed backtick (an accent, a quote) is given back as text after them
_INFO_LIMIT = 120
_RUN_LIMIT = 16
_INLINE_STOP = re.compile(r"[`\n]")
_LINE_LIMIT = 400  # a longer line of code leaves in parts


def read_code(place: Place) -> Verdict:
    """A fence or an inline code span that opens here; a fence's first line is left to its mode."""
    text, at, mark = place.text, place.at, place.text[place.at]
    if place.before.endswith(mark):
        return None  # inside a run that was already given back as text
    run = 1
    while run <= _RUN_LIMIT and text[at + run : at + run + 1] == mark:
        run += 1
    if run > _RUN_LIMIT:
        return None
    if at + run == len(text) and not place.is_final:
        return place.need()
    if run >= 3 and (mark == "`" or place.at_line_start):
        stop = _find(text, at + run, _INFO_LIMIT, mark)
        if stop == "\n" or (stop is None and place.is_final and mark == "`" and place.at_line_start):
            return Found(0, "atom", enter=Mode("fence", mark * run))
        if stop is None and len(text) - at - run < _INFO_LIMIT:
            return place.need(re.compile(f"[{mark}\n]"), run + _INFO_LIMIT)
    return _read_inline(place, run) if mark == "`" else None


def _find(text: str, start: int, limit: int, mark: str) -> str | None:
    """The first of newline and mark within the limit."""
    end = min(len(text), start + limit)
    places = [(where, ch) for ch in ("\n", mark) if (where := text.find(ch, start, end)) >= 0]
    return min(places)[1] if places else None


def _read_inline(place: Place, run: int) -> Verdict:
    text, start = place.text, place.at + run
    end = min(len(text), start + _INLINE_LIMIT)
    at = start
    while at < end and text[at] != "\n":
        if text[at] != "`":
            at += 1
            continue
        close = at
        while at < end and text[at] == "`":
            at += 1
        if at == len(text) and not place.is_final:
            return place.need()
        if at - close == run:
            return Found(at - place.at, "atom", spoken=text[start:close].strip())
    if at >= len(text) and at - start < _INLINE_LIMIT:
        return place.need(_INLINE_STOP, run + _INLINE_LIMIT)
    return None


def read_fence_line(place: Place, fence: str, is_first: bool) -> tuple[int, bool] | None:
    """Length of the next line of a fence with its newline, and whether it closes; None when more is needed."""
    newline = place.text.find("\n", place.at, place.at + _LINE_LIMIT)
    if newline < 0:
        held = len(place.text) - place.at
        if held >= _LINE_LIMIT:
            return _LINE_LIMIT, False
        if not place.is_final:
            return None
        newline = len(place.text) - 1
    line = place.text[place.at : newline + 1]
    bare = line.strip()
    closes = not is_first and len(bare) >= len(fence) and not bare.strip(fence[0])
    return len(line), closes


FENCE_NEED = Need(re.compile("\n"), _LINE_LIMIT)
