"""Caption text -> segments. `Segmenter` is the gateway's; `for_language` serves scorers and tools over raw text."""

from gateway.speech.segmenter.lengths import DEFAULT, SegmentOptions
from gateway.speech.segmenter.machine import Segment, Segmenter
from gateway.speech.segmenter.scoring import for_language, for_language_early

__all__ = ["DEFAULT", "Segment", "SegmentOptions", "Segmenter", "for_language", "for_language_early"]
