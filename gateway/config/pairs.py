"""Values that are valid alone and impossible together."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from gateway.config.tree import EndpointingSettings, SessionSettings, Settings

_KEY = re.compile(r"[\x21-\x7e]+")
_HASH = re.compile(r"sha256:[0-9a-fA-F]{64}")
_TICKETS = ("tkt_", "ek_")  # what is shown with these is never looked for among the keys
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class ConfigError(Exception):
    """A setting is wrong. The message names the key, what was got, and what would be valid."""


def check_pairs(settings: Settings) -> None:
    """Refuse values that are valid alone and impossible together."""
    server, session = settings.server, settings.session
    if server.host not in LOOPBACK and not server.keys and not settings.keys and not server.allow_open:
        raise ConfigError(
            f"server.host is {server.host!r}, reachable from other machines, and server.keys is empty: set STRETTO_KEYS, "
            "or server.allow_open = true to serve anyone"
        )
    if settings.metrics.host and settings.metrics.host not in LOOPBACK and not settings.metrics.key and not server.allow_open:
        raise ConfigError(
            f"metrics.host is {settings.metrics.host!r}, reachable from other machines, and metrics.key is empty: set it, or "
            "server.allow_open = true to let anyone read"
        )
    if bool(server.tls_certificate) != bool(server.tls_key):
        raise ConfigError("server.tls_certificate and server.tls_key go together; got only one of them")
    if session.text_bytes >= session.message_bytes:
        raise ConfigError(f"session.text_bytes ({session.text_bytes}) must be smaller than session.message_bytes ({session.message_bytes})")
    _check_store(session)
    _check_keys((*server.keys, *(key.key for key in settings.keys.values()), *filter(None, (settings.metrics.key,))))
    _check_proxies(server.trusted_proxies)
    _check_waits(settings.endpointing)
    _check_capture(settings)
    for name, key in settings.keys.items():
        if key.persona and key.persona not in settings.personas:
            known = ", ".join(sorted(settings.personas)) or "none is configured"
            raise ConfigError(f"keys.{name}.persona is {key.persona!r}; expected one of the personas: {known}")
    history = settings.history
    if history.trim_to >= history.trim_at:
        raise ConfigError(
            f"history.trim_to ({history.trim_to}) must be smaller than history.trim_at ({history.trim_at}): that much is left out at once"
        )
    if session.context_tokens + settings.turn.max_tokens > settings.llm.context_tokens:
        raise ConfigError(
            f"session.context_tokens ({session.context_tokens}) + turn.max_tokens ({settings.turn.max_tokens}) must fit into "
            f"llm.context_tokens ({settings.llm.context_tokens})"
        )


def _check_store(session: SessionSettings) -> None:
    """No message shows the address: it may hold a password."""
    if session.store_url and not session.store_url.startswith(("redis://", "rediss://", "unix://")):
        raise ConfigError("session.store_url begins with another scheme; expected redis://, rediss:// or unix://")
    if session.store_url and session.resume_s == 0:
        raise ConfigError("session.store_url is set and session.resume_s is 0, which turns resuming off; expected only one of them")


def _check_keys(keys: Sequence[str]) -> None:
    """They travel in headers. An empty one, as a template without its value leaves it, would let everyone in. No message shows one."""
    for key in keys:
        if not _KEY.fullmatch(key):
            raise ConfigError(
                f"a key in server.keys, [keys] or metrics.key has {len(key)} characters; expected one or more of visible ASCII, no spaces"
            )
        if key.startswith("sha256:") and not _HASH.fullmatch(key):
            raise ConfigError(
                f"a key in server.keys, [keys] or metrics.key is sha256: and {len(key) - 7} characters; expected 64 hex digits there"
            )
        if key.startswith(_TICKETS):
            raise ConfigError(f"a key in server.keys, [keys] or metrics.key begins like a ticket; expected none of: {', '.join(_TICKETS)}")


def _check_proxies(blocks: Sequence[str]) -> None:
    for block in blocks:
        try:
            network = ipaddress.ip_network(block)
        except ValueError as error:
            raise ConfigError(f"server.trusted_proxies: {error}; expected addresses or blocks like 10.0.0.0/8") from error
        if not network.prefixlen:
            raise ConfigError(f"server.trusted_proxies has {block}: everybody could say who they are; expected your own proxies alone")


def _check_capture(settings: Settings) -> None:
    capture = settings.capture
    if capture.file_bytes > capture.folder_bytes:
        raise ConfigError(f"capture.file_bytes ({capture.file_bytes}) must not be above capture.folder_bytes ({capture.folder_bytes})")
    keys = [name for name, key in settings.keys.items() if key.capture]
    if not capture.folder and (capture.all or capture.on_request or keys):
        wish = f"keys.{keys[0]}.capture" if keys else "capture.all" if capture.all else "capture.on_request"
        raise ConfigError(f"{wish} is true and capture.folder is empty; expected a folder for the conversations")


def _check_waits(waits: EndpointingSettings) -> None:
    if not waits.likely_ms <= waits.score_ms <= waits.sure_ms <= waits.unsure_ms <= waits.longest_ms:
        raise ConfigError(
            f"endpointing.likely_ms ({waits.likely_ms}), score_ms ({waits.score_ms}), sure_ms ({waits.sure_ms}), "
            f"unsure_ms ({waits.unsure_ms}) and longest_ms ({waits.longest_ms}) must not get smaller in this order"
        )
    if waits.silence_probability > waits.speech_probability:
        raise ConfigError(
            f"endpointing.silence_probability ({waits.silence_probability}) must not be above "
            f"endpointing.speech_probability ({waits.speech_probability})"
        )
