"""A prompt in pieces: what the model's own chat template wrote, and what people wrote. Pure.

The template is run over marks in the place of the texts. Then the pieces between the marks are the template's and may hold control
tokens; the texts are tokenized as text, so that a user who types `<|im_end|>` types ten letters and signs, no more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from engine.api import Message

_OPEN, _CLOSE = "\ue0a0", "\ue0a1"  # private use: no template writes them, and what a user writes never passes through the template
_MARK = re.compile(f"{_OPEN}(\\d+){_CLOSE}")


class Piece(Struct, frozen=True):
    """A stretch of the prompt. `is_text`: written by someone; special tokens in it are letters."""

    text: str
    is_text: bool


class BrokenTemplate(Exception):
    """The template left a message out, or changed its mark."""


def mark(index: int) -> str:
    """What stands for message `index` while the template runs."""
    return f"{_OPEN}{index}{_CLOSE}"


def merge_neighbors(messages: Sequence[Message]) -> list[Message]:
    """One message where a role speaks twice in a row, and the system's words in the user's: for templates that insist on turns."""
    merged: list[Message] = []
    for message in messages:
        if merged and (merged[-1].role == message.role or (merged[-1].role == "system" and message.role == "user")):
            merged[-1] = Message(role=message.role, text=f"{merged[-1].text}\n\n{message.text}")
        else:
            merged.append(Message(role=message.role, text=message.text))
    return merged


def split_rendered(rendered: str, messages: Sequence[Message]) -> list[Piece]:
    """The rendered template in pieces, each message's own text in the place of its mark. Raises `BrokenTemplate`."""
    pieces, position, seen = [], 0, []
    for found in _MARK.finditer(rendered):
        index = int(found.group(1))
        if index >= len(messages):
            raise BrokenTemplate(f"got a mark for message {index} of {len(messages)}")
        pieces += [Piece(rendered[position : found.start()], False), Piece(messages[index].text, True)]
        position = found.end()
        seen.append(index)
    pieces.append(Piece(rendered[position:], False))
    if sorted(set(seen)) != list(range(len(messages))):
        raise BrokenTemplate(f"the chat template shows {len(set(seen))} of {len(messages)} messages")
    return [piece for piece in pieces if piece.text]
