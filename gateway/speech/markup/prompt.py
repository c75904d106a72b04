"""What the model is told about marking emotion: it asks for nothing that the reader would not understand."""

from __future__ import annotations

from gateway.speech.emotion import Emotion, word_for
from gateway.speech.markup.rules import MarkupRules

_ENGLISH = (
    "When the feeling of your reply changes, write one mark in front of the sentence, exactly like {example}. "
    "The only marks are: {marks}. Use at most one per sentence, never explain a mark, and write no other stage directions."
)
_CHINESE = (
    "当语气发生变化时，在句子前面写一个标记，格式必须是：{example}。只能使用这些标记：{marks}。"
    "每句最多一个，不要解释标记，也不要写其他动作描写。"
)


def emotion_instructions(rules: MarkupRules, language: str) -> str:
    """A paragraph for the system prompt in `language` (Chinese, else English); "" when the rules know no word."""
    marks = [_mark(rules, word) for emotion in Emotion if (word := _word(rules, emotion, language))]
    if not marks:
        return ""
    template, comma = (_CHINESE, "、") if language.split("-")[0].lower() == "zh" else (_ENGLISH, ", ")
    example = marks[1] if len(marks) > 1 else marks[0]
    return template.format(example=example, marks=comma.join(marks))


def _word(rules: MarkupRules, emotion: Emotion, language: str) -> str | None:
    """The word to ask for: the usual one of the language, where the rules map it so, else their first."""
    usual = word_for(emotion, language)
    if rules.words.get(usual) == emotion:
        return usual
    return next((word for word, meaning in rules.words.items() if meaning == emotion), None)


def _mark(rules: MarkupRules, word: str) -> str:
    return rules.patterns[0].replace("{}", word) if rules.patterns else f'<emotion value="{word}">'
