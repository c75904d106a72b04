"""Asks a product's own address whether words may be heard: one POST for the user's words of a turn, one for each segment of the reply.

{"kind": "input"|"segment", "text", "session_id", "turn", "index", "language", "key", "user"} is answered by 200 and
{"allowed": true|false}. Any other answer, and none within the deadline, is a failure: `moderation.on_failure` says what that means. The
reply waits no longer than the deadline.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import msgspec

from gateway.config import ConfigError, ModerationSettings
from gateway.metrics import Metrics
from gateway.turn import Kind, Subject

IDLE_S = 60.0  # connections that are kept for the next question
CONNECTIONS = 64
ANSWER_BYTES = 65_536  # a verdict has twenty; the rest is for the product's own logs

log = logging.getLogger("stretto.moderation")


class _TooLarge(Exception):
    """The answer is no verdict, whatever it is."""


class Verdict(msgspec.Struct, frozen=True):
    """The answer; other keys are for the product's own logs."""

    allowed: bool


class HttpModerator:
    """A `Moderator`. Raises `ConfigError` where the HTTP library or the key's variable is missing."""

    def __init__(self, settings: ModerationSettings, metrics: Metrics) -> None:
        try:
            import httpx
        except ImportError as error:
            raise ConfigError(f"moderation.url is set and httpx is missing: {sys.executable} -m pip install 'stretto[http]'") from error
        self.kinds: frozenset[Kind] = frozenset(settings.judges)
        self._settings, self._metrics, self._faults = settings, metrics.watching, httpx.HTTPError
        self._dropped = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
        headers = {"content-type": "application/json", "accept-encoding": "identity"}  # nothing that unpacks to more than it is
        if settings.key_variable:
            if not os.environ.get(settings.key_variable):
                raise ConfigError(
                    f"moderation.key_variable names {settings.key_variable}, which is not set; expected the key of its url in it"
                )
            headers["authorization"] = f"Bearer {os.environ[settings.key_variable]}"
        limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=IDLE_S)
        no_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))  # one answer's would go with every later question
        # Any: imported here alone; our own deadline
        self._client: Any = httpx.AsyncClient(headers=headers, limits=limits, timeout=None, cookies=no_cookies)
        self._encoder, self._decoder = msgspec.json.Encoder(), msgspec.json.Decoder(Verdict)

    async def allows(self, subject: Subject) -> bool:
        began_s = time.monotonic()
        verdict = await self._ask(subject)
        self._metrics.moderation_seconds.labels(subject.kind).observe(time.monotonic() - began_s)
        self._metrics.moderation.labels(subject.kind, "failed" if verdict is None else "allowed" if verdict else "refused").inc()
        return verdict if verdict is not None else self._settings.on_failure == "allow"

    async def close(self) -> None:
        """Close its connections."""
        await self._client.aclose()

    async def _ask(self, subject: Subject) -> bool | None:
        """The verdict; None where there was none in time."""
        about = {
            "kind": subject.kind,
            "text": subject.text,
            "session_id": subject.session_id,
            "turn": subject.turn,
            "index": subject.index,
            "language": subject.language,
            "key": subject.caller.key,
            "user": subject.caller.user,
        }
        try:
            async with asyncio.timeout(self._settings.deadline_ms / 1000):
                try:
                    status, body = await self._post(about)
                except self._dropped:  # a kept connection that was being closed; to ask twice harms nobody
                    status, body = await self._post(about)
            if status == 200:
                return self._decoder.decode(body).allowed
            fault = f"HTTP {status}"
        except TimeoutError:
            fault = f"no answer within {self._settings.deadline_ms} ms"
        except self._faults as error:
            fault = type(error).__name__
        except _TooLarge:
            fault = f"an answer of more than {ANSWER_BYTES} bytes"
        except (msgspec.DecodeError, RecursionError):
            fault = 'expected {"allowed": true or false}'
        log.warning("moderation failed", extra={"session_id": subject.session_id, "turn_id": subject.turn, "detail": fault})
        return None

    async def _post(self, about: dict[str, Any]) -> tuple[int, bytes]:  # Any: JSON
        async with self._client.stream("POST", self._settings.url, content=self._encoder.encode(about)) as response:
            return response.status_code, await _body_of(response)


async def _body_of(response: Any) -> bytes:  # Any: httpx is imported above alone
    """As it came. Raises `_TooLarge` as soon as it is."""
    body = b""
    async for piece in response.aiter_raw():
        body += piece
        if len(body) > ANSWER_BYTES:
            raise _TooLarge
    return body
