"""Where sessions are found again by their id: the promise, and this process's memory as its first keeper.

A store shared by several gateways keeps the same promise: its `find` answers for a session of another process with an entry whose session
it made anew from what that process saved.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from typing import Protocol

from gateway.session import Session


class Entry:
    """A session in the store; `token` is what its client must show to resume it, new at each attachment.

    The token before it stays good until the attached client has said something: `session.ready` may have been lost on its way.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.token = secrets.token_urlsafe(16)
        self.token_before = ""
        self.expiry: asyncio.TimerHandle | None = None
        self.is_ending = False  # closed, and gone from the store as soon as its tasks are

    def opens(self, token: str) -> bool:
        """Whether `token` resumes this session now; compared in constant time."""
        given = token.encode("utf-8", "replace")
        is_current = hmac.compare_digest(self.token.encode(), given)
        is_before = hmac.compare_digest(self.token_before.encode(), given)
        return is_current or (is_before and bool(self.token_before) and not self.session.has_spoken)

    def renew(self) -> None:
        """Another token from now on."""
        self.token_before, self.token = self.token, secrets.token_urlsafe(16)

    @property
    def is_idle_and_away(self) -> bool:
        """Nobody is connected, and nothing was ever said: all that is lost with it is a place in the house."""
        return self.expiry is not None and not self.is_ending and not len(self.session.history)


class SessionStore(Protocol):
    """Session id -> entry. No call waits."""

    def add(self, entry: Entry) -> None:
        """Keep a new session."""

    def find(self, session_id: str) -> Entry | None:
        """The session of this id, if there is one."""

    def remove(self, session_id: str) -> Entry:
        """Forget a session that is kept. Raises `KeyError`."""

    def entries(self) -> list[Entry]:
        """All of this process, oldest first."""


class MemoryStore:
    """A `SessionStore` that ends with its process."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def add(self, entry: Entry) -> None:
        self._entries[entry.session.session_id] = entry

    def find(self, session_id: str) -> Entry | None:
        return self._entries.get(session_id)

    def remove(self, session_id: str) -> Entry:
        return self._entries.pop(session_id)

    def entries(self) -> list[Entry]:
        return list(self._entries.values())
