"""The items in their order: put in, taken out, settled, and told to the model."""

from __future__ import annotations

from collections.abc import Iterator

from engine.api import Kept, Message
from gateway.errors import DuplicateItem, UnknownItem
from gateway.history.items import Item
from gateway.history.prompt import estimate_tokens, prompt_messages

MAX_ITEMS = 4096  # a conversation of days; far more than any context holds


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
