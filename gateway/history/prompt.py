"""Items as the model is told them, and what they cost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import structs

from engine.api import Message, ToolCall
from gateway.history.items import Item

_WIDE_FROM = 0x2E80  # CJK and Hangul lie above: about one token a character; below, about one for three
MESSAGE_OVERHEAD_TOKENS = 6  # role markers of the common chat templates
_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)\s*", re.DOTALL | re.IGNORECASE)
_END_OF_REASONING = re.compile(r"</(?:think|thinking|reasoning)>\s*", re.IGNORECASE)


def prompt_messages(items: Iterable[Item]) -> Iterator[Message]:
    """Items as the model is told them: calls join the assistant's words before them; a call without result, or the reverse, is left out.

    Chat templates refuse results whose call is missing, and a model that sees an unanswered call repeats it.
    """
    listed = list(items)
    called = {item.call_id for item in listed if item.kind == "call"}
    answered = {item.call_id for item in listed if item.kind == "result"} & called
    open_message: Message | None = None
    for item in listed:
        if item.kind != "message" and item.call_id not in answered:
            continue
        if item.kind == "call":
            call = ToolCall(call_id=item.call_id or "", name=item.name or "", arguments=item.text)
            said = open_message or Message(role="assistant", text="")
            open_message = structs.replace(said, tool_calls=(*said.tool_calls, call))
            continue
        if open_message is not None:
            yield open_message
            open_message = None
        if item.kind == "result":
            yield Message(role="tool", text=item.text, call_id=item.call_id)
        elif item.role == "assistant":
            open_message = Message(role="assistant", text=item.text)
        else:
            yield Message(role=item.role, text=item.text)
    if open_message is not None:
        yield open_message


def without_oldest(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """About half of a prompt that did not fit: the instructions stay, and what begins with a later question; None where there is none."""
    n_head = int(bool(messages) and messages[0].role == "system")
    head, rest = messages[:n_head], messages[n_head:]
    later = [place for place, message in enumerate(rest) if place and message.role == "user"]
    if not later:
        return None
    kept = rest[next((place for place in later if place >= len(rest) // 2), later[-1]) :]
    called = {call.call_id for message in kept for call in message.tool_calls}
    return (*head, *(message for message in kept if message.role != "tool" or message.call_id in called))


def estimate_tokens(text: str) -> int:
    """Tokens of a message, on the safe side, without a tokenizer."""
    n_wide = 0 if text.isascii() else sum(1 for char in text if ord(char) >= _WIDE_FROM)
    return n_wide + (len(text) - n_wide + 2) // 3 + MESSAGE_OVERHEAD_TOKENS


def cost(item: Item) -> int:
    """Tokens of an item; estimated once, because every turn asks for those of all."""
    if not item.n_tokens:
        item.n_tokens = estimate_tokens(item.text)
    return item.n_tokens


def estimated_tokens(messages: Iterable[Message], tools: Sequence[dict[str, Any]] = ()) -> int:  # Any: JSON schema
    """Tokens of a whole prompt, as `estimate_tokens`."""
    described = msgspec.json.encode(tools).decode() if tools else ""
    return sum(estimate_tokens(message.text) for message in messages) + (estimate_tokens(described) if described else 0)


def without_reasoning(raw: str, *, starts_inside: bool = False) -> str:
    """The model's words as the next prompt repeats them: chat templates drop reasoning from history, so do we.

    `starts_inside`: the template has opened the reasoning, so that the words begin behind its end, or not at all.
    """
    if starts_inside:
        _, *behind = _END_OF_REASONING.split(raw, maxsplit=1)
        raw = behind[-1] if behind else ""
    return _REASONING.sub("", raw)
