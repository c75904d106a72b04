"""The operator's `[speech]` section -> the rules of the markup reader."""

from __future__ import annotations

from gateway.config import ConfigError, SpeechSettings
from gateway.speech.emotion import WORDS, Emotion
from gateway.speech.markup.rules import MarkupRules


def rules_from(settings: SpeechSettings) -> MarkupRules:
    """Built once per process: what is compiled from the rules is kept by their identity. Raises `ConfigError`."""
    words = dict(WORDS)
    for word, emotion in settings.emotion_words.items():
        try:
            words[word] = Emotion(emotion)
        except ValueError as error:
            known = ", ".join(Emotion)
            raise ConfigError(f"speech.emotion_words.{word}: got {emotion!r}, expected one of {known}") from error
    try:
        return MarkupRules(
            patterns=settings.emotion_patterns,
            words=words,
            emoji="segment" if settings.emotion_emoji else "off",
            stage_directions=settings.stage_directions,
            starts_in_reasoning=settings.starts_in_reasoning,
            code_notice=settings.code_notice,
        )
    except ValueError as error:
        raise ConfigError(f"speech: {error}") from error
