"""Which marks are recognised: the settings of the markup reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from gateway.speech.emotion import WORDS, Emotion

_REASONING_NAMES = ("think", "thinking", "thought", "reasoning", "reflection", "analysis", "scratchpad")
REASONING: tuple[tuple[str, str], ...] = (
    *((f"<{name}>", f"</{name}>") for name in _REASONING_NAMES),
    ("[think]", "[/think]"),
    ("◁think▷", "◁/think▷"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
)


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity, so that what is compiled from it can be kept
class MarkupRules:
    """What the model may write beside plain text.

    **patterns**: how an emotion mark looks, `{}` standing for the word (`[{}]`, `【{}】`, `({})`). **words**: word in lower
    case -> emotion, for all patterns and for `<emotion value="...">`. **emoji**: where a face is a mark (`segment`: at
    the start of the reply, a line or a sentence; `off`: never). **starts_in_reasoning**: the template has
    opened the reasoning block, so only its closing tag will come. **code_notice**: said once in place of fenced code.

    Raises `ValueError` for a pattern without exactly one `{}` between two non-empty, non-space marks, or a word with upper case.
    """

    patterns: tuple[str, ...] = ("[{}]",)
    words: Mapping[str, Emotion] = field(default_factory=lambda: WORDS)
    emoji: Literal["segment", "off"] = "segment"
    stage_directions: bool = True
    starts_in_reasoning: bool = False
    reasoning: tuple[tuple[str, str], ...] = REASONING
    code_notice: str = ""

    def __post_init__(self) -> None:
        for pattern in self.patterns:
            opener, found, closer = pattern.partition("{}")
            if not found or "{}" in closer or not opener.strip() or not closer.strip():
                raise ValueError(f"emotion pattern {pattern!r}: expected a mark, {{}} and a mark, like '[{{}}]'")
        for word in self.words:
            if not word or word != word.strip().lower():
                raise ValueError(f"emotion word {word!r}: expected a non-empty word in lower case without spaces around it")
        for opener, closer in self.reasoning:
            if not opener.strip() or not closer.strip():
                raise ValueError(f"reasoning block {opener!r} ... {closer!r}: expected two non-empty tags")


DEFAULT = MarkupRules()


@lru_cache(maxsize=8)  # the same object each time, because what is compiled from rules is kept by their identity
def behind_reasoning(rules: MarkupRules) -> MarkupRules:
    """The same rules for text in front of which no template opens a reasoning block: what people wrote, the words of past replies."""
    return replace(rules, starts_in_reasoning=False) if rules.starts_in_reasoning else rules
