"""Clean-up for any language: markdown marks, emoji, repeated punctuation, white space.

What is left are words, and the punctuation that a voice breathes at.
"""

from __future__ import annotations

import re
import unicodedata

from gateway.speech.normalizer.spoken import Edit

_EMOJI = (
    "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2190-\u21ff\u25a0-\u25ff\u2300-\u23ff\ufe0f\u200b-\u200f\u2060\ufeff\u20e3"
    "\U000e0020-\U000e007f\u2022\u00ad"
)
_CLEAN = re.compile(
    rf"(?P<emoji>[{_EMOJI}]+)"
    r"|(?P<line>(?:(?<=\n)|\A)[ \t]*(?:\#{1,6}(?=\s)|>+|[-*+](?=\s)|\|)[ \t]*)"
    r"|(?P<cell>[ \t]*\|[ \t]*(?=\S)|[ \t]*\|)"
    r"|(?P<under>(?<=\w)_+(?=\w))"
    r"|(?P<mark>[*_~`\[\]{}<>\\^|]+)"
    r"|(?P<ellipsis>\.{2,}|…+|。{3,}|·{2,})"
    r"|(?P<stops>[!?！？。](?:\s*[!?！？。.])+|\.(?=[!?！？。])|(?P<again>[,;:，；：、])(?P=again)+)"
    r"|(?P<dash>-{2,}|[—–―]{2,}|={2,})"
    r"|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffd\ufffc]+)"
    r"|(?P<space>\s{2,}|[\n\r\t\u00a0\u3000\u2028\u2029])"
)
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")


def clean(text: str) -> list[Edit]:
    """The edits that take away what no voice should see."""
    edits = []
    for match in _CLEAN.finditer(text):
        spoken = _say(match, text)
        if spoken != match[0]:
            edits.append(Edit(match.start(), match.end(), spoken))
    return edits


def _say(match: re.Match[str], text: str) -> str:
    kind, found = match.lastgroup, match[0]
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if kind == "emoji":
        return " " if before.isalnum() and after.isalnum() and not _WIDE.match(before) else ""
    if kind == "cell":
        return "" if not after or not (before.isalnum() or before in ")%") else "，" if _WIDE.match(before) else ", "
    if kind in ("under", "space"):
        return " "
    if kind == "ellipsis":
        return "…"
    if kind in ("stops", "again"):
        return _one_stop(found)
    return "—" if kind == "dash" and "=" not in found else ""


def _one_stop(found: str) -> str:
    """The mark that tells most: a question is heard, an exclamation next."""
    for mark in "？?！!":
        if mark in found:
            return mark
    return found[0] if found != "." else ""


def is_speakable(ch: str) -> bool:
    """A letter or digit of any script."""
    return unicodedata.category(ch)[0] in "LN"
