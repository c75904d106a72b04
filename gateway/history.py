"""The items of a conversation: what the model is told was said, cut to what was heard, within a token budget.

Pure. The persona's instructions are never dropped; the oldest items are. An assistant item holds the model's own words
(raw text less reasoning), so that the next prompt repeats them exactly and the engine's prefix cache hits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from engine.api import Kept, Message
from gateway.errors import DuplicateItem, UnknownItem
from gateway.events import Role

_WIDE_FROM = 0x2E80  # CJK and Hangul lie above: about one token a character; below, about one for three
MESSAGE_OVERHEAD_TOKENS = 6  # role markers of the common chat templates
_REASONING = re.compile(r"<(think|thinking|reasoning)>.*?(?:</\1>|\Z)\s*", re.DOTALL | re.IGNORECASE)


class Item(Struct, kw_only=True):
    """One message. `is_open`: a reply still being made; it is not part of a prompt yet."""

    item_id: str
    role: Role
    text: str
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

    def find(self, item_id: str) -> Item:
        """The item. Raises `UnknownItem`."""
        return self._items[self._index(item_id)]

    def add(self, item: Item, after: str | None = None) -> None:
        """Put `item` at the end or behind `after` (`root`: in front). Raises `DuplicateItem`, `UnknownItem`."""
        if any(known.item_id == item.item_id for known in self._items):
            raise DuplicateItem(f"There is already an item {item.item_id!r}.")
        place = len(self._items) if after is None else 0 if after == "root" else self._index(after) + 1
        self._items.insert(place, item)

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
        chosen: list[Message] = []
        for item in reversed(self._items):
            if item.is_open:
                continue
            left -= estimate_tokens(item.text)
            if left < 0 and chosen:
                break
            chosen.append(Message(role=item.role, text=item.text))
        head = (Message(role="system", text=instructions),) if instructions else ()
        return (*head, *reversed(chosen))

    def _index(self, item_id: str) -> int:
        for place, item in enumerate(self._items):
            if item.item_id == item_id:
                return place
        raise UnknownItem(f"There is no item {item_id[:80]!r} in this conversation.")


def estimate_tokens(text: str) -> int:
    """Tokens of a message, on the safe side, without a tokenizer."""
    n_wide = sum(1 for char in text if ord(char) >= _WIDE_FROM)
    return n_wide + (len(text) - n_wide + 2) // 3 + MESSAGE_OVERHEAD_TOKENS


def without_reasoning(raw: str) -> str:
    """The model's words as the next prompt repeats them: chat templates drop reasoning from history, so do we."""
    return _REASONING.sub("", raw)
