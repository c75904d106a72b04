"""One item of a conversation."""

from __future__ import annotations

from msgspec import Struct

from gateway.events import ItemKind, Role


class Item(Struct, kw_only=True):
    """One message, call or result; `text` is its words, its arguments (JSON) or its output.

    `is_open`: a reply of which nothing was said or heard (yet); it is not part of a prompt. `is_left_out`: nor is this, the prompt had
    no room for it any more. `is_made`: a model wrote it, with the marks that are asked of it.
    `n_tokens`: what it costs, estimated; 0 until somebody has looked.
    """

    item_id: str
    role: Role = "user"
    text: str = ""
    kind: ItemKind = "message"
    call_id: str | None = None
    name: str | None = None
    is_open: bool = False
    is_left_out: bool = False
    is_made: bool = False
    n_tokens: int = 0
