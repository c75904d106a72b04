"""Angle brackets: reasoning blocks, emotion tags, formatting tags and leaked control tokens.

Only names of closed lists are tags; `vector<int>` and `a < b` stay text.
"""

from __future__ import annotations

import re

from gateway.speech.emotion import Emotion
from gateway.speech.markup.pieces import Found, Mode, Place, Verdict
from gateway.speech.markup.rules import MarkupRules

_TAG_LIMIT = 120  # longer than any tag of the lists with its attributes
_TAG_END = re.compile(r"[>\n]")
_TAG = re.compile(r"<(/?)\s*([A-Za-z][A-Za-z0-9_-]*)(\s[^<>\n]*?|)\s*(/?)>")
_NAME = re.compile(r"</?\s{0,2}([A-Za-z][A-Za-z0-9_-]*)?")
_ATTRIBUTE = re.compile(r"""(?:value|name|type|emotion)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'/>]+))""", re.I)
_CONTROL = re.compile(r"<\|[A-Za-z0-9_▁]{1,40}\|>")
_CONTROL_PART = re.compile(r"<\|?[A-Za-z0-9_▁]{0,40}\|?")

# Wrappers that some models put around the answer, and sounds of expressive voices: neither caption nor speech.
_HIDDEN = frozenset(
    [
        "answer",
        "response",
        "final",
        "output",
        "emotion",
        "emotions",
        "laugh",
        "laughs",
        "laughter",
        "chuckle",
        "sigh",
        "sighs",
        "cough",
        "sniffle",
        "groan",
        "yawn",
        "gasp",
        "giggle",
    ]
)
# Formatting: kept in the caption as written, never said.
_FORMAT = frozenset(
    [
        "b",
        "i",
        "u",
        "s",
        "em",
        "strong",
        "br",
        "p",
        "span",
        "div",
        "small",
        "sub",
        "sup",
        "mark",
        "hr",
        "ul",
        "ol",
        "li",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "a",
        "speak",
        "prosody",
        "break",
        "emphasis",
        "voice",
        "say-as",
    ]
)
_NAMES = _HIDDEN | _FORMAT


def read_reasoning(place: Place, rules: MarkupRules) -> Verdict:
    """A block that opens or, where the opener is missing, closes here."""
    unsure = False
    for opener, closer in rules.reasoning:
        opens, closes = place.starts(opener.lower()), place.starts(closer.lower())
        if opens:
            return Found(len(opener), "hidden", enter=Mode("reasoning", closer.lower()))
        if closes:
            return Found(len(closer), "hidden", is_break=True)
        unsure = unsure or opens is None or closes is None
    return place.need() if unsure else None


def read_tag(place: Place, rules: MarkupRules) -> Verdict:
    """An emotion, formatting or control tag."""
    held = place.text[place.at : place.at + _TAG_LIMIT]
    if found := _CONTROL.match(held):
        return Found(found.end(), "hidden")
    if (part := _CONTROL_PART.match(held)) and part.end() == len(held) < _TAG_LIMIT and held.startswith("<|"):
        return place.need()
    if tag := _TAG.match(held):
        return _judge(tag, rules)
    name = _NAME.match(held)
    if name is None or len(held) >= _TAG_LIMIT:
        return None
    if name.end() == len(held):
        word = (name[1] or "").lower()
        return place.need() if any(known.startswith(word) for known in _NAMES) else None
    if (name[1] or "").lower() not in _NAMES or _TAG_END.search(held, 1):
        return None
    if "<" in held[1:]:
        return None
    return place.need(_TAG_STOP, _TAG_LIMIT)


_TAG_STOP = re.compile(r"[<>\n]")


def _judge(tag: re.Match[str], rules: MarkupRules) -> Found | None:
    name = tag[2].lower()
    if name == "emotion":
        if tag[1]:
            return Found(tag.end(), "emotion", closes_emotion=True)
        value = _ATTRIBUTE.search(tag[3])
        word = next((group for group in value.groups() if group), "") if value else ""
        emotion: Emotion | None = rules.words.get(word.strip().lower())
        # A tag is a mark for certain, so an unknown value is dropped, not read aloud.
        return Found(tag.end(), "emotion", emotion=emotion) if emotion else Found(tag.end(), "hidden")
    if name in _HIDDEN:
        return Found(tag.end(), "hidden")
    return Found(tag.end(), "atom", spoken="") if name in _FORMAT else None
