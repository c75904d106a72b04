"""Rules and how they share a text: the first rule that claims a stretch keeps it.

A rule whose kind the voice reads well by itself claims its stretch too, and leaves it as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gateway.speech.normalizer.spoken import Edit

# What a voice may be trusted to say by itself. Plain digits are `numbers`; each other kind is the writing it is named after.
VOICE_READS = frozenset(
    (
        "abbreviations",
        "addresses",
        "codes",
        "dates",
        "fractions",
        "math",
        "money",
        "numbers",
        "ordinals",
        "percents",
        "phones",
        "ranges",
        "ratios",
        "times",
        "units",
        "years",
    )
)

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\d])|\d+(?:\.\d+)?|\.\d+)"
DASH = r"\s?[-‐‑–—−~～]\s?"


@dataclass(frozen=True, slots=True)
class Rule:
    """What matches `pattern` is of a kind, and `say` gives its spoken form; None where the match is not what it seemed."""

    kind: str
    pattern: re.Pattern[str]
    say: Callable[[re.Match[str]], str | None]


def rule(kind: str, pattern: str, say: Callable[[re.Match[str]], str | None] | str, flags: int = 0) -> Rule:
    """A rule of a known kind; a string is said as it is."""
    assert kind in VOICE_READS, f"unknown kind {kind!r}"
    return Rule(kind, re.compile(pattern, flags), say if callable(say) else _always(say))


def _always(words: str) -> Callable[[re.Match[str]], str | None]:
    return lambda _: words


_CONTEXT = 40  # characters that a rule looks around; it keeps the rules linear in the length of the text


def before(match: re.Match[str]) -> str:
    """The text in front of a match, as far as a rule may look."""
    return match.string[max(0, match.start() - _CONTEXT) : match.start()]


def after(match: re.Match[str]) -> str:
    """The text behind a match, as far as a rule may look."""
    return match.string[match.end() : match.end() + _CONTEXT]


class Claims:
    """The stretches of one text that are spoken for."""

    def __init__(self, length: int) -> None:
        self._taken = bytearray(length)
        self.edits: list[Edit] = []

    def add(self, edit: Edit) -> None:
        """Claim a stretch; one that touches a claimed stretch is refused silently."""
        if any(self._taken[edit.start : edit.end]):
            return
        self._taken[edit.start : edit.end] = b"\x01" * (edit.end - edit.start)
        self.edits.append(edit)

    def ask(self, text: str, rules: Sequence[Rule], voice_reads: frozenset[str]) -> None:
        """Let each rule claim what it matches, in order."""
        for rule in rules:
            for match in rule.pattern.finditer(text):
                if match[0] and not any(self._taken[match.start() : match.end()]):
                    spoken = rule.say(match)
                    if spoken is not None:
                        self.add(Edit(match.start(), match.end(), match[0] if rule.kind in voice_reads else spoken))

    def add_all(self, edits: Iterable[Edit]) -> None:
        """Claim each stretch that is still free."""
        for edit in edits:
            self.add(edit)

    def ordered(self) -> list[Edit]:
        """The claimed stretches in the order of the text."""
        return sorted(self.edits, key=lambda edit: (edit.start, edit.end))
