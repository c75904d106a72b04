"""From Whisper's tokens to text, and when not to believe it. Pure.

Asked about noise or silence the model answers with what it saw most often in its training data. It shows: with the base model and a window
of 10 s, noises had a no-speech probability of 0.53 to 0.91 and a mean log-probability below -1.2; speech in noise as loud as itself (0 dB)
had 0.01 to 0.19 and more than -1.2. Source of the method: Radford et al. (2022), section 4.5.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

_NO_SPEECH = 0.4  # the model's own probability that nobody speaks, believed where it is unsure of its words too
_UNSURE = -1.0  # mean log-probability of a token
_GUESSED = -2.5  # and where it has no idea of its words at all
_NEARLY = 0.1  # of mean log-probability behind the best reading: "coffee and" is so near to "coffee hand", "I think so..." 0.9 off
_REPETITIVE = 2.4  # how far text may be compressed
_SHORTEST_REFRAIN, _LONGEST_REFRAIN = 3, 20  # words: "no, no, no" is said, "she put down her bags" three times in a row is not
_TIMES = 3
_UNIT = re.compile(r"[\u2e80-\u2fff\u3005-\u3007\u3040-\ud7ff\uf900-\ufaff]|[^\W_]+")
_TOKENS_PER_S = 12  # twice what a fast speaker says in a script with a token for each character
_TOKENS_AT_LEAST = 12


def _byte_values() -> dict[str, int]:
    """What the signs of a byte-level vocabulary (as GPT-2's) stand for: visible Latin-1 for itself, those from 256 on for other bytes."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in visible]
    return {chr(value): value for value in visible} | {chr(256 + index): value for index, value in enumerate(hidden)}


_BYTES = _byte_values()


def read(tokens: Sequence[str]) -> str:
    """Text of the tokens, without control tokens; a character that was cut is left out."""
    spoken = (token for token in tokens if not token.startswith("<|"))
    return bytes(_BYTES[sign] for token in spoken for sign in token).decode("utf-8", "ignore").strip()


def most_tokens(length_s: float) -> int:
    """A bound on the tokens of an answer, so that a loop ends soon."""
    return _TOKENS_AT_LEAST + int(length_s * _TOKENS_PER_S)


def is_silence(no_speech: float, mean_log_probability: float) -> bool:
    """Whether the model itself thinks that nobody speaks."""
    return (no_speech > _NO_SPEECH and mean_log_probability < _UNSURE) or mean_log_probability < _GUESSED


def near(readings: Sequence[tuple[str, float]]) -> tuple[str, ...]:
    """Of readings and their mean log-probabilities, the best first: those that are other texts than the best and nearly as likely."""
    best, top = readings[0]
    return tuple(dict.fromkeys(text for text, mean in readings[1:] if top - mean < _NEARLY and text and text != best))


def is_loop(text: str) -> bool:
    """Whether a text repeats itself as no speaker does: all of it, or its end behind words that were really said."""
    data = text.encode()
    return len(data) / len(zlib.compress(data)) > _REPETITIVE or _ends_in_refrain(_UNIT.findall(text.casefold()))


def _ends_in_refrain(words: list[str]) -> bool:
    spans = range(_SHORTEST_REFRAIN, min(_LONGEST_REFRAIN, len(words) // _TIMES) + 1)
    return any(words[-span * (_TIMES - 1) :] == words[-span * _TIMES : -span] for span in spans)
