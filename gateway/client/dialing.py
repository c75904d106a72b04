"""The WebSocket handshake, with every way it can fail put into words."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode, urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI
from websockets.typing import Subprotocol

from gateway.client.faults import ConnectFailed
from gateway.codecs.native import SUBPROTOCOL

FRAME_BYTES = 4 * 1024 * 1024  # the server's largest frame is far smaller; a bound keeps a wrong server from filling memory
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
HINTS = {
    401: "a key or ticket is needed, or this one is wrong, used or over",
    403: "this Host or Origin is not allowed, or no gateway is at this path",
    404: "there is no Stretto gateway at this path",
    429: "too many connections",
    503: "the gateway is full or stopping",
}


GetTicket = Callable[[], Awaitable[str]]


class Dialer:
    """Where to connect, and with which key, or with a new ticket each time."""

    def __init__(
        self, url: str, *, key: str | None, timeout_s: float, tls: ssl.SSLContext | None, ticket: str | GetTicket | None = None
    ) -> None:
        self.url = url
        self.timeout_s = timeout_s
        self._key = key
        self._ticket = ticket
        self._tls = tls

    async def dial(self, resume: str = "") -> ClientConnection:
        """An open WebSocket. `resume`: the session that it is for, so that a full house lets it in. Raises `ConnectFailed`."""
        shown = self._key if self._ticket is None else await self._new_ticket(self._ticket)
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        try:
            address = urlsplit(self.url)
            return await connect_websocket(
                _for_session(self.url, resume),
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers=headers,
                compression=None,  # speech does not shrink, and deflate costs each message
                max_size=FRAME_BYTES,
                open_timeout=self.timeout_s,
                proxy=None if (address.hostname or "") in LOOPBACK else True,
                ssl=(self._tls or True) if address.scheme.lower() == "wss" else None,
            )
        except InvalidStatus as error:
            raise _refused(self.url, error) from error
        except ssl.SSLCertVerificationError as error:  # a ValueError too, hence before it
            fault = f"the certificate of {self.url} is not trusted here ({error.verify_message})"
            raise ConnectFailed(f"{fault}; a self-signed one has to be accepted (--insecure)") from error
        except ssl.SSLError as error:
            raise ConnectFailed(f"TLS with {self.url} failed: {error.reason}") from error
        except (InvalidURI, ValueError) as error:
            raise ConnectFailed(f"{self.url!r} is not a WebSocket address; expected one like ws://127.0.0.1:8080/v1/voice") from error
        except TimeoutError as error:
            raise ConnectFailed(f"no answer from {self.url} within {self.timeout_s} s", retryable=True) from error
        except OSError as error:
            raise ConnectFailed(f"nothing listens at {self.url} ({error.strerror or error})", retryable=True) from error
        except (InvalidHandshake, EOFError) as error:
            broke_off = isinstance(error.__cause__ or error, EOFError | ConnectionError)
            said = "the connection broke in the handshake" if broke_off else str(error)
            raise ConnectFailed(f"{self.url} does not speak {SUBPROTOCOL}: {said}", retryable=broke_off) from error

    async def _new_ticket(self, ticket: str | GetTicket) -> str:
        if isinstance(ticket, str):
            return ticket
        try:
            return await ticket()
        except Exception as error:  # the caller's own function, which may fail in any way; a lost connection asks it again
            raise ConnectFailed(f"no ticket for {self.url}: {error}", retryable=True) from error


def _for_session(url: str, session_id: str) -> str:
    if not session_id:
        return url
    address = urlsplit(url)
    return address._replace(query="&".join(filter(None, (address.query, urlencode({"resume": session_id}))))).geturl()


def _refused(url: str, error: InvalidStatus) -> ConnectFailed:
    status = error.response.status_code
    after = error.response.headers.get("Retry-After", "")
    hint = HINTS.get(status, "the handshake was refused")
    return ConnectFailed(
        f"{url} answered HTTP {status}: {hint}",
        status=status,
        retryable=status in (429, 503),
        retry_after_s=float(after) if after.isdigit() else None,
    )
