"""What clients put into a conversation: checked, named, and shown again as they may see it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from msgspec import Struct

from gateway.errors import BadMessage, NotPermitted, TextEmpty, TextTooLong
from gateway.events import AddItem, HistoryItem, ItemInfo
from gateway.history import History, Item
from gateway.speech.markup import MarkupReader, MarkupRules, behind_reasoning

MAX_ID = 64  # characters of an item's or a call's id


class Bounds(Struct, frozen=True, kw_only=True):
    """What a client may put in: bytes of one text, and whether it may speak as the system (a key barred from instructions may not)."""

    text_bytes: int
    may_instruct: bool = True


def new_item_id() -> str:
    """An id that no other item has."""
    return f"item_{secrets.token_hex(8)}"


def checked_text(text: str, limit_bytes: int) -> str:
    """The text, where it can be read. Raises `TextTooLong`, `TextEmpty`."""
    _check_length(text, limit_bytes)
    if not text.strip() or not any(char.isprintable() and not char.isspace() for char in text):
        raise TextEmpty("The text holds nothing to read; expected at least one visible character.")
    return text


def item_from(given: AddItem | ItemInfo | HistoryItem, bounds: Bounds) -> Item:
    """A client's item for the history. Raises `BadMessage`, `TextTooLong`, `TextEmpty`, `NotPermitted`."""
    if isinstance(given, HistoryItem):
        given = ItemInfo(role=given.role, text=given.text)
    item_id = new_item_id() if given.item_id is None else _checked_id("item_id", given.item_id)
    if given.kind == "message":
        if given.role == "system" and not bounds.may_instruct:
            raise NotPermitted("This key may not give instructions; expected no message of the system.")
        return Item(item_id=item_id, role=given.role, text=checked_text(given.text, bounds.text_bytes))
    call_id = _checked_id("call_id", given.call_id)
    _check_length(given.text, bounds.text_bytes)
    if given.kind == "result":
        return Item(item_id=item_id, role="user", text=given.text, kind="result", call_id=call_id)
    return Item(item_id=item_id, role="assistant", text=given.text, kind="call", call_id=call_id, name=_checked_id("name", given.name))


def context_from(given: Iterable[ItemInfo], history: History, bounds: Bounds) -> list[Item]:
    """The items that a reply gets instead of the conversation; a lone `item_id` names one of it. Raises as `item_from`, `UnknownItem`."""
    return [history.find(one.item_id) if one.item_id is not None and _is_reference(one) else item_from(one, bounds) for one in given]


def shown(item: Item, rules: MarkupRules) -> ItemInfo:
    """An item as its client may see it: a model's reply without marks and stage directions; what the client gave, as it was given."""
    text = caption(item.text, rules) if item.is_made else item.text
    return ItemInfo(item_id=item.item_id, kind=item.kind, role=item.role, text=text, call_id=item.call_id, name=item.name)


def caption(raw: str, rules: MarkupRules) -> str:
    """The caption of a model's own words, which stand behind its reasoning. 32 KB of hostile marks would take seconds: not for texts of
    clients."""
    reader = MarkupReader(behind_reasoning(rules))
    return "".join(piece.text for piece in (*reader.feed(raw), *reader.flush()) if piece.kind in ("text", "atom"))


def _is_reference(given: ItemInfo) -> bool:
    return not given.text and given.kind == "message"


def _checked_id(field: str, value: str | None) -> str:
    if value is None or not 0 < len(value) <= MAX_ID:
        got = "missing" if value is None else f"{len(value)} characters long"
        raise BadMessage(f"{field} is {got}; expected 1 to {MAX_ID} characters.")
    return value


def _check_length(text: str, limit_bytes: int) -> None:
    n_bytes = len(text.encode("utf-8", "replace"))
    if n_bytes > limit_bytes:
        raise TextTooLong(f"The text has {n_bytes} bytes; expected at most {limit_bytes}.")
