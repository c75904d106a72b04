"""Where sessions are found again by their id: the promise, and this process's memory as its first keeper.

A store that several gateways share (`redis_store`) keeps the same promise: `claim` answers for a session of another process with what
that process saved of it.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Callable
from typing import Literal, Protocol

from gateway.auth import Rights
from gateway.session import SavedSession, Session

Claim = SavedSession | Literal["here", "gone", "denied"]
"""What a store says to a resume: another process saved it so, and it is ours now; this process's memory decides; nobody else has
it; the token is wrong."""


class Entry:
    """A session in the store; `token` is what its client must show to resume it, new at each attachment.

    The token before it stays good until the attached client has said something: `session.ready` may have been lost on its way.
    """

    def __init__(self, session: Session, token: str = "", token_before: str = "") -> None:
        self.session = session
        self.binding = binding_of(session.profile.rights)
        self.token = token or new_token()
        self.token_before = token_before
        self.expiry: asyncio.TimerHandle | None = None
        self.is_gone = asyncio.Event()  # its tasks have ended
        self.is_ending = False  # closed, and gone from the store as soon as its tasks are
        self.may_move = True  # whether its client can come back at all, here or to another gateway
        self.is_kept = False  # it ends here, and another gateway may go on with it

    def opens(self, token: str, binding: bytes) -> bool:
        """Whether `token` resumes this session now, shown by who may; compared in constant time."""
        given = token.encode("utf-8", "replace")
        is_current = hmac.compare_digest(self.token.encode(), given)
        is_before = hmac.compare_digest(self.token_before.encode(), given)
        if not hmac.compare_digest(self.binding, binding):
            return False
        return is_current or (is_before and bool(self.token_before) and not self.session.has_spoken)

    def renew(self) -> None:
        """Another token from now on."""
        self.token_before, self.token = self.token, new_token()

    @property
    def is_idle_and_away(self) -> bool:
        """Nobody is connected, and nothing was ever said: all that is lost with it is a place in the house."""
        return self.expiry is not None and not self.is_ending and not len(self.session.history)


def binding_of(rights: Rights) -> bytes:
    """Who may resume a session: the same key, and for tickets the same user."""
    return f"{rights.holder}\n{rights.user}".encode("utf-8", "replace")


def new_token() -> str:
    """128 bits that nobody guesses."""
    return secrets.token_urlsafe(16)


class SessionStore(Protocol):
    """Session id -> entry. Only `claim`, `flush` and `run` wait, each for a bounded time."""

    def add(self, entry: Entry) -> None:
        """Keep a new session."""

    def find(self, session_id: str) -> Entry | None:
        """The session of this id, if there is one."""

    def remove(self, entry: Entry) -> None:
        """Forget a session whose tasks have ended; a newer one of its id stays."""

    def entries(self) -> list[Entry]:
        """All of this process, oldest first."""

    async def claim(self, session_id: str, token: str, new_token: str, binding: bytes) -> Claim:
        """A client wants this session and shows `token`; from now on it is `new_token`. `binding`: as `binding_of` gives it."""

    async def flush(self) -> None:
        """Save what has changed, now. Gives up quietly: the next time will do."""

    async def run(self, taken_over: Callable[[Entry], None]) -> None:
        """Save what changes, until cancelled; `taken_over` is told of sessions that another process has claimed."""


class MemoryStore:
    """A `SessionStore` that ends with its process: nothing to save, nobody to claim."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        self._entries[entry.session.session_id] = entry

    def find(self, session_id: str) -> Entry | None:
        return self._entries.get(session_id)

    def remove(self, entry: Entry) -> None:
        if self._entries.get(entry.session.session_id) is entry:
            del self._entries[entry.session.session_id]

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    async def claim(self, session_id: str, token: str, new_token: str, binding: bytes) -> Claim:
        return "here"

    async def flush(self) -> None:
        pass

    async def run(self, taken_over: Callable[[Entry], None]) -> None:
        pass
