"""The items of a conversation: what the model is told was said, cut to what was heard, within a token budget.

Pure. The persona's instructions are never dropped; the oldest items are. An assistant item holds the model's own words
(raw text less reasoning), so that the next prompt repeats them exactly and the engine's prefix cache hits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, structs

from engine.api import Kept, Message, ToolCall
from gateway.errors import DuplicateItem, UnknownItem
from gateway.events import ItemKind, Role

_WIDE_FROM = 0x2E80  # CJK and Hangul lie above: about one token a character; below, about one for three
MAX_ITEMS = 4096  # a conversation of days; far more than any context holds
MESSAGE_OVERHEAD_TOKENS = 6  # role markers of the common chat templates
_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)\s*", re.DOTALL | re.IGNORECASE)


class Item(Struct, kw_only=True):
    """One message, call or result; `text` is its words, its arguments (JSON) or its output.

    `is_open`: a reply of which nothing was said or heard (yet); it is not part of a prompt.
    """

    item_id: str
    role: Role = "user"
    text: str = ""
    kind: ItemKind = "message"
    call_id: str | None = None
    name: str | None = None
    is_open: bool = False


class History:
    """Ordered items of one conversation, and the token ids of its prefix where the engine keeps them."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self.kept: Kept | None = None

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def has(self, item_id: str) -> bool:
        """Whether there is such an item."""
        return any(item.item_id == item_id for item in self._items)

    def find(self, item_id: str) -> Item:
        """The item. Raises `UnknownItem`."""
        return self._items[self._index(item_id)]

    def add(self, item: Item, after: str | None = None) -> None:
        """Put `item` at the end or behind `after` (`root`: in front). Raises `DuplicateItem`, `UnknownItem`."""
        if any(known.item_id == item.item_id for known in self._items):
            raise DuplicateItem(f"There is already an item {item.item_id!r}.")
        place = len(self._items) if after is None else 0 if after == "root" else self._index(after) + 1
        self._items.insert(place, item)
        if len(self._items) > MAX_ITEMS:
            del self._items[0]

    def before(self, item_id: str) -> str | None:
        """The id of the item in front of this one; None for the first."""
        place = self._index(item_id)
        return self._items[place - 1].item_id if place else None

    def has_open_call(self, call_id: str) -> bool:
        """Whether there is a call with this id and no result for it."""
        kinds = {item.kind for item in self._items if item.call_id == call_id}
        return "call" in kinds and "result" not in kinds

    def delete(self, item_id: str) -> None:
        """Take an item out. Raises `UnknownItem`."""
        del self._items[self._index(item_id)]

    def settle_reply(self, item_id: str, text: str, *, is_final: bool) -> None:
        """Set what a reply came to; one of which nothing was heard leaves no item. Deleted meanwhile: nothing to do."""
        for place, item in enumerate(self._items):
            if item.item_id == item_id:
                if is_final and not text.strip():
                    del self._items[place]
                else:
                    item.text, item.is_open = text, not text.strip()
                return

    def messages(self, instructions: str, budget_tokens: int) -> tuple[Message, ...]:
        """The prompt: instructions, then the newest items that fit; the last user item is always in."""
        left = budget_tokens - estimate_tokens(instructions)
        chosen: list[Item] = []
        has_question = not any(map(_is_question, self._items))
        for item in reversed(self._items):
            if item.is_open:
                continue
            left -= estimate_tokens(item.text)
            if left < 0 and has_question and chosen:
                break
            chosen.append(item)
            has_question = has_question or _is_question(item)
        head = (Message(role="system", text=instructions),) if instructions else ()
        return (*head, *prompt_messages(chosen[::-1]))

    def _index(self, item_id: str) -> int:
        for place, item in enumerate(self._items):
            if item.item_id == item_id:
                return place
        raise UnknownItem(f"There is no item {item_id[:80]!r} in this conversation.")


def _is_question(item: Item) -> bool:
    return item.kind == "message" and item.role == "user"


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


def estimate_tokens(text: str) -> int:
    """Tokens of a message, on the safe side, without a tokenizer."""
    n_wide = 0 if text.isascii() else sum(1 for char in text if ord(char) >= _WIDE_FROM)
    return n_wide + (len(text) - n_wide + 2) // 3 + MESSAGE_OVERHEAD_TOKENS


def without_reasoning(raw: str) -> str:
    """The model's words as the next prompt repeats them: chat templates drop reasoning from history, so do we."""
    return _REASONING.sub("", raw)
