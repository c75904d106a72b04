"""Clean-up for any language: markdown marks, emoji, repeated punctuation, white space.

What is left are words, and the punctuation that a voice breathes at.
"""

from __future__ import annotations

import re
import unicodedata

from gateway.speech.normalizer.spoken import Edit

_EMOJI = (
    "\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\u2190-\u21ff\u25a0-\u25ff\u2300-\u23ff\u20e3\u2022\u2122\u00ae\u00a9"
    "\ufe0e\ufe0f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0020-\U000e007f\u00ad"
)
_CLEAN = re.compile(
    rf"(?P<emoji>[{_EMOJI}]+)"
    r"|(?P<line>(?:(?<=\n)|\A)[ \t]*(?:\#{1,6}(?=\s)|>+|[-*+](?=\s)|\|)[ \t]*)"
    r"|(?P<cell>\|+)"
    r"|(?P<under>(?<=[A-Za-z0-9])_+(?=[A-Za-z0-9]))"
    r"|(?P<mark>[*_~～`\[\]{}<>\\^#=]+)"
    r"|(?P<ellipsis>\.{2,}|…+|。{3,}|·{2,})"
    r"|(?P<stops>[!?！？。](?:\s*[!?！？。.])+|\.(?:\s*[!?！？。])+|(?P<again>[,;:，；：、])(?P=again)+)"
    r"|(?P<dash>-{2,}|[—–―]{2,})"
    r"|(?P<control>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffc\ufffd]+)"
    r"|(?P<space>\s{2,}|[\n\r\t\u00a0\u3000\u2028\u2029])"
)
_CITATION = re.compile(r"(?<=[\w.,;!?。，！？”\"])(?:\[\d{1,3}\])+")
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
# In front of the first word only what belongs to it may stand: a stop there was carried over from the segment before.
_TIDY = re.compile(
    r"\A[\s!?.,;:…—–)\]】」』》！？。，；：、）’”»·|/]+|\s+\Z|(?<=[，。！？；：、]) +"
    r"|\s+(?=[,.!?;:，。！？；：、…](?:\s|\Z))|(?P<gap>\s{2,})"
)


def citations(text: str) -> list[Edit]:
    """The edits that take away `[3]` behind a word or stop; no number rule may read them."""
    return [Edit(match.start(), match.end(), "") for match in _CITATION.finditer(text)]


def clean(text: str) -> list[Edit]:
    """The edits that take away what no voice should see."""
    edits = []
    for match in _CLEAN.finditer(text):
        spoken = _say(match, text)
        if spoken != match[0]:
            edits.append(Edit(match.start(), match.end(), spoken))
    return edits


def tidy(text: str) -> list[Edit]:
    """The edits for what the other edits left behind: doubled spaces, stops before the first word."""
    return [Edit(match.start(), match.end(), " " if match.lastgroup else "") for match in _TIDY.finditer(text)]


def _say(match: re.Match[str], text: str) -> str:
    kind, found = match.lastgroup, match[0]
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    if kind == "emoji":
        return " " if before.isalnum() and after.isalnum() and not _WIDE.match(before) and not _WIDE.match(after) else ""
    if kind == "cell":
        return _between_cells(text[max(0, match.start() - 8) : match.start()].rstrip()[-1:], text[match.end() : match.end() + 8].strip())
    if kind in ("under", "space"):
        return " "
    if kind == "ellipsis":
        return "…"
    if kind in ("stops", "again"):
        return _one_stop(found)
    return "—" if kind == "dash" else ""


def _between_cells(before: str, after: str) -> str:
    if not after or not before or before in "\n,，":
        return ""
    return "，" if _WIDE.match(before) else ", "


def _one_stop(found: str) -> str:
    """The mark that tells most: a question is heard, an exclamation next."""
    return next((mark for mark in "？?！!" if mark in found), found[0])


def is_speakable(ch: str) -> bool:
    """A letter or digit of any script."""
    return unicodedata.category(ch)[0] in "LN"
