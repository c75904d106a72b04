"""Links, images, footnotes, bare addresses, and lines that only draw a rule.

A link is one atom: what is said is its label. An e-mail address is left to the text: its words leave as they come, and nothing in it
looks like the end of a sentence.
"""

from __future__ import annotations

import re

from gateway.speech.markup.pieces import Found, Mode, Place, Verdict

_LABEL_LIMIT = 200  # characters of a label; brackets around more are not a link
_TARGET_LIMIT = 1000
_ADDRESS_LIMIT = 600  # a longer address leaves in parts
_ADDRESS_PART = 400
_RULE_LIMIT = 200
_LABEL_STOP = re.compile(r"[\[\]\n]")
_TARGET_STOP = re.compile(r"[()\s]")
_TARGET = re.compile(r"<?(?:[a-z][a-z0-9+.-]*:|www\.|[/#.]|[\w-]+(?:\.[\w-]+)+|[\w-]+/)", re.I)
_TITLE = re.compile(r"""\s+(?:"[^"\n]*"|'[^'\n]*')\s*""")
_ADDRESS_CHARS = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_ADDRESS_STOP = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]")
_ADDRESS_HEADS = ("https://", "http://", "www.")
_AUTOLINK = re.compile(r"<(?:https?://|mailto:)[^\s<>]{1,600}>", re.I)
_RULE_CHARS = re.compile(r"[-|:=+*_ \t]*")
_RULE_LINE = re.compile(
    r"\s*(?:\|?\s*:?-{2,}[-|:+ \t]*|\|[-|:+ \t]*-[-|:+ \t]*|(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|={3,}|\+[-=+]+)\s*"
)


def read_link(place: Place) -> Verdict:
    """`[label](target)`, `![alt](target)`, `[^1]`; any other bracket is text."""
    text, at = place.text, place.at
    if text[at] == "!":
        if at + 1 == len(text):
            return place.need()
        if text[at + 1] != "[":
            return None
        at += 1
    label = _label_end(text, at + 1)
    if label is None:
        return place.need(_LABEL_STOP, at - place.at + 1 + _LABEL_LIMIT) if len(text) - at - 1 < _LABEL_LIMIT else None
    if label < 0:
        return None
    if text[at + 1 : at + 2] == "^":
        return Found(label + 1 - place.at, "atom", spoken="")
    if label + 1 == len(text):
        return place.need()
    if text[label + 1] != "(":
        return None
    end = target_end(text, label + 1)
    if end is None:
        return place.need(_TARGET_STOP, _LABEL_LIMIT + _TARGET_LIMIT) if len(text) - label < _TARGET_LIMIT else None
    return Found(end - place.at, "atom", spoken=text[at + 1 : label].strip()) if end > 0 else None


def _label_end(text: str, start: int) -> int | None:
    """Where the label's bracket closes; -1 for never, None for not yet."""
    depth, end = 0, min(len(text), start + _LABEL_LIMIT)
    for at in range(start, end):
        ch = text[at]
        if ch == "\n" or depth > 1:
            return -1
        if ch == "]":
            if depth == 0:
                return at
            depth -= 1
        elif ch == "[":
            depth += 1
    return None if end == len(text) else -1


def target_end(text: str, opener: int) -> int | None:
    """The offset behind a link target that opens here; -1 when this is no target, None for not yet."""
    depth, at, end = 0, opener + 1, min(len(text), opener + _TARGET_LIMIT)
    while at < end:
        ch = text[at]
        if ch == ")" and depth == 0:
            return at + 1 if _TARGET.match(text[opener + 1 : at]) else -1
        if ch.isspace():
            return _titled_end(text, opener, at)
        depth += (ch == "(") - (ch == ")")
        at += 1
    return None if end == len(text) else -1


def _titled_end(text: str, opener: int, space: int) -> int | None:
    if not _TARGET.match(text[opener + 1 : space]) or "\n" in text[space : space + 1]:
        return -1
    close = text.find(")", space, space + _LABEL_LIMIT)
    if close < 0:
        return None if len(text) < space + _LABEL_LIMIT and "\n" not in text[space:] else -1
    return close + 1 if _TITLE.fullmatch(text[space:close]) else -1


def read_autolink(place: Place) -> Verdict:
    """An address in angle brackets."""
    held = place.text[place.at : place.at + _ADDRESS_LIMIT]
    if found := _AUTOLINK.match(held):
        return Found(found.end(), "atom")
    for head in ("<https://", "<http://", "<mailto:"):
        starts = place.starts(head)
        if starts is None:
            return place.need()
        if starts:
            ended = len(held) >= _ADDRESS_LIMIT or re.search(r"[\s<>]", held[1:])
            return None if ended else place.need(re.compile(r"[\s<>]"), _ADDRESS_LIMIT)
    return None


def read_address(place: Place) -> Verdict:
    """A bare web address, without the punctuation of the sentence around it."""
    if place.before[-1:].isascii() and (place.before[-1:].isalnum() or place.before[-1:] in "_@/.-"):
        return None
    heads = [(head, place.starts(head)) for head in _ADDRESS_HEADS]
    head = next((head for head, starts in heads if starts), None)
    if head is None:
        return place.need() if any(starts is None for _, starts in heads) else None
    first = place.text[place.at + len(head) : place.at + len(head) + 1]
    if not first:
        return place.need()
    if not (first.isascii() and first.isalnum()):
        return None
    length = _address_length(place, _ADDRESS_LIMIT)
    if length is None:
        return place.need(_ADDRESS_STOP, _ADDRESS_LIMIT)
    return Found(length, "atom", enter=Mode("address", "") if length == _ADDRESS_LIMIT else None)


def read_address_part(place: Place) -> int | None:
    """The length of the next part of a long address (0: it is over); None when more is needed."""
    return _address_length(place, _ADDRESS_PART)


ADDRESS_PART = _ADDRESS_PART


def _address_length(place: Place, limit: int) -> int | None:
    match = _ADDRESS_CHARS.match(place.text, place.at, place.at + limit)
    end = match.end() if match else place.at
    if end - place.at >= limit:
        return limit
    if end == len(place.text) and not place.is_final:
        return None
    while end > place.at and _trails(place.text[place.at : end]):
        end -= 1
    return end - place.at


def _trails(address: str) -> bool:
    last = address[-1]
    if last in ")]":
        return address.count(last) > address.count("(" if last == ")" else "[")
    return last in ".,;:!?'*_~([&"


def read_rule_line(place: Place) -> Verdict:
    """A line that only draws: a table's rule, `---`, `***`, `===`."""
    if not place.at_line_start:
        return None
    match = _RULE_CHARS.match(place.text, place.at, place.at + _RULE_LIMIT)
    end = match.end() if match else place.at
    if end == len(place.text) and end - place.at < _RULE_LIMIT and not place.is_final:
        return place.need()
    if end < len(place.text) and place.text[end] not in "\r\n":
        return None
    return Found(end - place.at, "atom", spoken="") if _RULE_LINE.fullmatch(place.text[place.at : end]) else None
