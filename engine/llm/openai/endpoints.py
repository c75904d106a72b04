"""Which server answers which conversation.

Pure; moments are seconds of one monotonic clock. A conversation belongs to one server, because its prefix cache has the history
(rendezvous hashing: when a server goes or comes, only its own conversations move). A server that failed is passed over for a
while that grows with each failure, or for as long as it asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec import Struct

from engine.api import EngineSetupError

_PAUSES_S = (1.0, 2.0, 5.0, 10.0)  # after the first, second ... failure in a row; the last one repeats
_LONGEST_S = 60.0  # a server that asks for more is looked at again by then


class Endpoint(Struct, frozen=True):
    """`url` ends in `/v1` or its like; `socket` is a Unix socket's path, "" for TCP. `name` is what the operator wrote."""

    name: str
    url: str
    socket: str = ""


def parse(text: str) -> Endpoint:
    """`http://host:8000/v1`, or `unix:/run/vllm.sock` (its paths begin with `/v1`). Raises `EngineSetupError`."""
    if text.startswith("unix:"):
        path = "/" + text.removeprefix("unix:").lstrip("/")
        if path == "/":
            raise EngineSetupError(f"llm.endpoints: got {text!r}; expected the path of a socket, as in unix:/run/vllm.sock")
        return Endpoint(text, "http://localhost/v1", path)
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise EngineSetupError(f"llm.endpoints: got {text!r}; expected http://host:port/v1, https://host/v1 or unix:/path/of/socket")
    if parts.username or parts.query:
        raise EngineSetupError("llm.endpoints: an address has no user, password or query; a key is named by llm.key_variable")
    return Endpoint(text, text.rstrip("/"))


def session_of(request_id: str) -> str:
    """The conversation of a request: what stands before the turn's number."""
    session, dash, _ = request_id.rpartition("-")
    return session if dash else request_id


def order(session: str, endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """All endpoints, the conversation's own first, then where it goes when that one fails. The same on every gateway."""
    return sorted(endpoints, key=lambda endpoint: hashlib.blake2b(f"{session}\n{endpoint.name}".encode(), digest_size=8).digest())


class Standing:
    """What is known of each endpoint's health."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._failures = dict.fromkeys(endpoints, 0)
        self._until_s = dict.fromkeys(endpoints, 0.0)
        self._why: dict[Endpoint, str] = {}

    def failed(self, endpoint: Endpoint, now_s: float, why: str, retry_after_s: float | None = None) -> None:
        """Pass it over for a while."""
        self._failures[endpoint] += 1
        pause_s = _PAUSES_S[min(self._failures[endpoint], len(_PAUSES_S)) - 1]
        self._until_s[endpoint] = now_s + min(_LONGEST_S, pause_s if retry_after_s is None else max(retry_after_s, pause_s))
        self._why[endpoint] = why

    def answered(self, endpoint: Endpoint) -> None:
        """It works."""
        self._failures[endpoint] = 0
        self._until_s[endpoint] = 0.0
        self._why.pop(endpoint, None)

    def is_down(self, endpoint: Endpoint) -> bool:
        """Whether its last answer was a failure, be it long ago."""
        return self._failures[endpoint] > 0

    def is_due(self, endpoint: Endpoint, now_s: float) -> bool:
        """Whether it may be tried."""
        return now_s >= self._until_s[endpoint]

    def candidates(self, session: str, now_s: float) -> list[Endpoint]:
        """Whom to ask, in order: those that work, then those whose pause is over, then the rest. Never empty."""
        ordered = order(session, list(self._failures))
        return sorted(ordered, key=lambda endpoint: (self.is_down(endpoint), not self.is_due(endpoint, now_s)))  # sorting is stable

    def words(self) -> str:
        """For the operator."""
        n = len(self._failures)
        up = sum(not self.is_down(endpoint) for endpoint in self._failures)
        faults = "; ".join(f"{endpoint.name}: {why}" for endpoint, why in self._why.items())
        return f"{up} of {n} servers answer" + (f" ({faults})" if faults else "")

    @property
    def is_any_up(self) -> bool:
        """Whether a turn can be answered."""
        return any(not self.is_down(endpoint) for endpoint in self._failures)
