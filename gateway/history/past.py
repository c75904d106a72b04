"""The items in their order: put in, taken out, settled, told to the model, and left out when there are too many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import structs

from engine.api import Kept, Message
from gateway.errors import DuplicateItem, UnknownItem
from gateway.history.budget import Budget, n_to_leave_out
from gateway.history.items import Item
from gateway.history.prompt import cost, estimated_tokens, prompt_messages

DEAREST = 8.0  # a byte-level tokenizer takes up to three tokens for a character that is estimated at a third of one
MAX_ITEMS = 4096  # a conversation of days; far more than any context holds
MAX_CHARACTERS = 4_000_000  # the same for clients that fill every item: 16 MB at most


class History:
    """Ordered items of one conversation, and the token ids of its prefix where the engine keeps them."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        self._n_characters = 0
        self._dearness = 1.0  # real tokens over estimated ones, at least 1: the estimate is on the safe side for most scripts
        self.earlier = ""  # told in front of the items, for those that were left out
        self.n_changes = 0  # counts up, so that whoever saves it knows
        self.kept: Kept | None = None

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def has(self, item_id: str) -> bool:
        """Whether there is such an item."""
        return item_id in self._by_id

    def find(self, item_id: str) -> Item:
        """The item. Raises `UnknownItem`."""
        item = self._by_id.get(item_id)
        if item is None:
            raise UnknownItem(f"There is no item {item_id[:80]!r} in this conversation.")
        return item

    def add(self, item: Item, after: str | None = None) -> None:
        """Put `item` at the end or behind `after` (`root`: in front). Raises `DuplicateItem`, `UnknownItem`."""
        if item.item_id in self._by_id:
            raise DuplicateItem(f"There is already an item {item.item_id!r}.")
        place = len(self._items) if after is None else 0 if after == "root" else self._index(after) + 1
        self._items.insert(place, item)
        self._by_id[item.item_id] = item
        self._n_characters += len(item.text)
        cost(item)  # now, and not for all of a long history at once
        self.n_changes += 1
        while len(self._items) > MAX_ITEMS or self._n_characters > MAX_CHARACTERS:
            self._take_out(0)

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
        place = self._index(item_id)
        if self._items[place].is_left_out:
            self.earlier = ""  # what a client deletes does not live on in a summary
        self._take_out(place)
        self.n_changes += 1

    def settle_reply(self, item_id: str, text: str, *, is_final: bool) -> None:
        """Set what a reply came to; one of which nothing was heard leaves no item. Deleted meanwhile: nothing to do."""
        item = self._by_id.get(item_id)
        if item is None:
            return
        self.n_changes += 1
        if is_final and not text.strip():
            self._take_out(self._index(item_id))
        else:
            self._n_characters += len(text) - len(item.text)
            item.text, item.is_open, item.n_tokens = text, not text.strip(), 0

    def messages(
        self,
        instructions: str,
        budget: Budget,
        tools: Sequence[dict[str, Any]] = (),  # Any: JSON schema
        *,
        trims: bool = True,
    ) -> tuple[Message, ...]:
        """The prompt: instructions, then what the budget has room for; `trims`: what it has none for is left out from now on."""
        told, fixed = self._told(), self._fixed_tokens(instructions, tools)
        tokens = budget.tokens / self._dearness
        if fixed + _tokens(told) > tokens:
            n_gone = n_to_leave_out(told, tokens * budget.trim_to - fixed)
            if trims:
                self.leave_out(told[:n_gone])
            told = told[n_gone:]
        return self._prompt(instructions, told)

    def outgrown(self, instructions: str, budget: Budget, tools: Sequence[dict[str, Any]] = ()) -> list[Item]:  # Any: JSON schema
        """What should be left out before the next turn: the oldest items, in one big step; none while there is room."""
        told, fixed = self._told(), self._fixed_tokens(instructions, tools)
        tokens = budget.tokens / self._dearness
        if fixed + _tokens(told) <= tokens * budget.trim_at:
            return []
        return told[: n_to_leave_out(told, tokens * budget.trim_to - fixed)]

    def learn(self, estimated_tokens: int, real_tokens: int, *, is_too_long: bool) -> None:
        """What a prompt came to. Scripts that take more tokens than estimated (Thai, emoji) count for what they take from then on."""
        if is_too_long:
            self._dearness = min(DEAREST, 2 * self._dearness)
        elif real_tokens:
            self._dearness = min(DEAREST, max(1.0, real_tokens / estimated_tokens))

    def beginning(self, instructions: str, items: Sequence[Item]) -> tuple[Message, ...]:
        """The prompt up to the last of `items`, which are the oldest that are told."""
        return self._prompt(instructions, items)

    def leave_out(self, items: Iterable[Item], earlier: str | None = None) -> None:
        """From now on the model is not told these; `earlier`: what it is told instead of everything that was left out."""
        for item in items:
            item.is_left_out = True
            self.n_changes += 1
        if earlier is not None:
            self.earlier = earlier

    def _told(self) -> list[Item]:
        return [item for item in self._items if not item.is_open and not item.is_left_out]

    def _fixed_tokens(self, instructions: str, tools: Sequence[dict[str, Any]]) -> int:  # Any: as above
        fixed = (Message(role="system", text=text) for text in (instructions, self.earlier) if text)
        return estimated_tokens(fixed, tools)

    def _prompt(self, instructions: str, items: Sequence[Item]) -> tuple[Message, ...]:
        head = [Message(role="system", text=instructions)] if instructions else []
        tail = list(prompt_messages(items))
        if self.earlier and tail and tail[0].role == "user":  # one message: some templates refuse two of a kind in a row
            tail[0] = structs.replace(tail[0], text=f"{self.earlier}\n\n{tail[0].text}")
        elif self.earlier:
            head.append(Message(role="user", text=self.earlier))
        return (*head, *tail)

    def _index(self, item_id: str) -> int:
        found = self.find(item_id)
        return next(place for place, item in enumerate(self._items) if item is found)

    def _take_out(self, place: int) -> None:
        gone = self._items.pop(place)
        del self._by_id[gone.item_id]
        self._n_characters -= len(gone.text)


def _tokens(items: Iterable[Item]) -> int:
    return sum(cost(item) for item in items)
