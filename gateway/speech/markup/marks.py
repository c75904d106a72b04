"""Emotion marks: a word between brackets, or a face in front of a sentence."""

from __future__ import annotations

from gateway.speech.emotion import FACES
from gateway.speech.markup.links import target_end
from gateway.speech.markup.pieces import Found, Place, Verdict
from gateway.speech.markup.rules import MarkupRules

_SENTENCE_ENDS = frozenset(".!?。！？…\"'”’」』)）】]~～*")
_JOINERS = frozenset("\ufe0f\u200d\u20e3")
_EMOJI_RUN_LIMIT = 40


def read_pattern(place: Place, rules: MarkupRules) -> Verdict:
    """A mark of one of the configured patterns; an unknown word is text."""
    unsure = False
    for pattern in rules.patterns:
        opener, _, closer = pattern.partition("{}")
        head = place.starts(opener.lower())
        if head is None:
            unsure = True
        if not head:
            continue
        verdict = _read_word(place, len(opener), closer.lower(), rules)
        if isinstance(verdict, Found):
            return verdict
        unsure = unsure or verdict is None
    return place.need() if unsure else None


def _read_word(place: Place, skip: int, closer: str, rules: MarkupRules) -> Found | bool | None:
    """Found, False, or None for not known yet."""
    unsure = False
    rest = place.text[place.at + skip : place.at + skip + 80].lower()
    for word, emotion in rules.words.items():
        mark = word + closer
        if rest.startswith(mark):
            end = skip + len(mark)
            after = place.text[place.at + end : place.at + end + 1]
            if closer == "]":
                if after == "" and not place.is_final:
                    return None
                target = target_end(place.text, place.at + end) if after == "(" else -1
                if target is None and not place.is_final:
                    return None
                if target is not None and target > 0:
                    return False  # the label of a link
            return Found(end, "emotion", emotion=emotion)
        unsure = unsure or mark.startswith(rest)
    return None if unsure and not place.is_final else False


def is_emoji(ch: str) -> bool:
    """A pictograph, or a mark that joins or colours one."""
    point = ord(ch)
    return (
        0x1F000 <= point <= 0x1FAFF
        or 0x2600 <= point <= 0x27BF
        or 0x2B00 <= point <= 0x2BFF
        or ch in _JOINERS
        or 0xE0020 <= point <= 0xE007F
    )


def read_face(place: Place) -> Verdict:
    """A run of emoji that begins with a known face, at the start of a sentence that has words."""
    emotion = FACES.get(place.text[place.at])
    before = place.before.rstrip(" \t")
    leads = before.endswith("\n") or (before[-1:] in _SENTENCE_ENDS and before != place.before)
    if emotion is None or not leads:
        return None
    text, at = place.text, place.at + 1
    end = place.at + _EMOJI_RUN_LIMIT
    while at < min(len(text), end) and is_emoji(text[at]):
        at += 1
    run = at
    while at < min(len(text), end) and text[at] in " \t":
        at += 1
    if at >= len(text) and at < end:
        return place.need()
    return Found(run - place.at, "emotion", emotion=emotion) if at < end and text[at] != "\n" else None
