"""Whether what is heard while a reply is spoken stops it: words do; coughs, backchannels and our own echo do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from gateway.endpointing.echo import is_echo, units

Verdict = Literal["confirm", "dismiss", "wait"]


def judge(text: str, *, is_final: bool, backchannels: Iterable[str], said: str = "") -> Verdict:
    """Confirm or dismiss an interruption by its text so far, or wait for more of it.

    `said`: the reply's words around now, to know an echo by; empty where none is possible.
    """
    words = units(text)
    if said and is_echo(text, said):
        return "dismiss" if is_final else "wait"
    if is_backchannel(words, backchannels):
        return "dismiss" if is_final else "wait"
    return "confirm"


def is_backchannel(words: list[str], backchannels: Iterable[str]) -> bool:
    """Whether the words are backchannels alone, one or several; so is nothing."""
    phrases = [phrase for known in backchannels if (phrase := units(known))]
    reachable = {0}
    for end in range(1, len(words) + 1):
        if any(end - len(phrase) in reachable and words[end - len(phrase) : end] == phrase for phrase in phrases):
            reachable.add(end)
    return len(words) in reachable
