"""Questions to llama.cpp's own server that its Python calls do not answer: tokenize, render the chat template.

Over a Unix socket in a folder of ours and with a key, both in one process: nothing listens on the network. Blocks, about 0.5 ms a question.
"""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any

from engine.api import EngineError


class Refused(EngineError):
    """The server answered with an error."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class LocalHttp:
    """A client for one server. Safe to use from several threads: each question has its own connection."""

    def __init__(self, path: str, key: str, timeout_s: float = 20.0) -> None:
        self._path = path
        self._headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        self._timeout_s = timeout_s

    def ask(self, route: str, body: dict[str, Any] | None = None) -> Any:  # Any: JSON
        """The answer to a POST, or to a GET where there is no body. Raises `EngineError`; the message quotes nothing that was sent."""
        connection = _UnixConnection(self._path, self._timeout_s)
        try:
            connection.request("GET" if body is None else "POST", route, None if body is None else json.dumps(body), self._headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(f"llama.cpp did not answer {route}: {type(error).__name__}") from error
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise Refused(f"llama.cpp answered {route} with status {response.status}")
        return answer
