"""Configured phrases as a voice is asked for them: cut into segments and written out as they are spoken. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gateway.speech.markup import MarkupRules, behind_reasoning
from gateway.speech.segmenter import SegmentOptions
from gateway.speech.stream import SpeechStream


def spoken_phrases(phrases: Iterable[str], languages: Sequence[str], rules: MarkupRules, early_first: bool) -> tuple[str, ...]:
    """What `say` makes of each phrase in a session of each of the languages; every text once."""
    found: dict[str, None] = {}
    for phrase in phrases:
        for language in languages:
            stream = SpeechStream(language=language, rules=behind_reasoning(rules), options=SegmentOptions(early_first=early_first))
            segments = (*stream.feed(phrase).segments, *stream.flush().segments)
            found.update((segment.spoken.text, None) for segment in segments if segment.spoken.text)
    return tuple(found)
