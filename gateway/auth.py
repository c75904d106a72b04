"""Who may connect: keys, the page's Origin, the Host that was asked for.

Pure. Keys are kept as SHA-256 and compared in constant time, whether the settings have the key itself or `sha256:` and its hash; no answer
and no message has a key in it. A browser sends its Origin with every WebSocket, so a foreign page is refused even on loopback; a foreign
Host means DNS rebinding.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct, structs

from gateway.config import KeySettings
from gateway.errors import BadMessage, ForbiddenOrigin, NotPermitted, Unauthorized, WrongKey

HASHED = "sha256:"
_OWN_PORT = {"http": ":80", "https": ":443"}  # which a browser leaves out of an origin
_PLACE = re.compile(r"[^/\\?#@\s]+")
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Rights(Struct, frozen=True, kw_only=True):
    """What a key's clients may do. `persona`: they speak as this one of the configuration, and as no other.

    `holder`: which key it is, without telling the key; "" where no keys are configured. `user`: who a ticket was made for.
    `cache_salt`: keeps their prompts apart in the engine's prefix cache, where their key is isolated.
    `name`: as in [keys.NAME]; "" for the keys of `server.keys`. `capture`: their conversations are kept.
    """

    persona: str = ""
    instructions: bool = True
    tools: bool = True
    holder: str = ""
    user: str = ""
    cache_salt: str | None = None
    name: str = ""
    capture: bool = False

    @property
    def account(self) -> str:
        """On whose account their use goes: the key's name, or its holder id where it has none."""
        return self.name or self.holder


FULL_RIGHTS = Rights()


class Access(Struct, frozen=True, kw_only=True):
    """The rule set of one server. `key_hashes`: SHA-256 digests; empty: everyone who reaches the socket may use it.

    `key_rights` stand beside them, one for each.
    """

    key_hashes: tuple[bytes, ...] = ()
    key_rights: tuple[Rights, ...] = ()
    origins: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    @property
    def needs_key(self) -> bool:
        """Whether clients must show a key."""
        return bool(self.key_hashes)


def access(keys: Iterable[str], origins: Iterable[str], hosts: Iterable[str], bounded: Mapping[str, KeySettings] | None = None) -> Access:
    """The rules from settings: keys that may do everything, and named keys with their own rights."""
    rights = [(digest_of(key), FULL_RIGHTS) for key in keys]
    for name, named in (bounded or {}).items():
        own = Rights(
            persona=named.persona,
            instructions=named.instructions,
            tools=named.tools,
            cache_salt=cache_salt(named),
            name=name,
            capture=named.capture,
        )
        rights.append((digest_of(named.key), own))
    return Access(
        key_hashes=tuple(digest for digest, _ in rights),
        key_rights=tuple(structs.replace(own, holder=hashlib.sha256(digest).hexdigest()[:16]) for digest, own in rights),
        origins=frozenset(origin.rstrip("/").lower() for origin in origins),
        hosts=frozenset(host.lower() for host in hosts),
    )


def digest_of(configured: str) -> bytes:
    """The SHA-256 of a key as the settings have it: plain, or `sha256:` and the hash in hex."""
    return bytes.fromhex(configured.removeprefix(HASHED)) if configured.startswith(HASHED) else hashlib.sha256(configured.encode()).digest()


def hashed(key: str) -> str:
    """What the settings may keep instead of the key."""
    return HASHED + hashlib.sha256(key.encode()).hexdigest()


def cache_salt(key: KeySettings) -> str | None:
    """The salt of an isolated key: the same after a restart and in every process, and not to be guessed by who does not know the key."""
    return hashlib.sha256(b"prefix cache of " + digest_of(key.key)).hexdigest()[:32] if key.isolate else None


def check_host(rules: Access, host_header: str | None) -> None:
    """Refuse a Host that is neither local, an address, nor listed. Raises `ForbiddenOrigin`."""
    name = _host_name(host_header or "")
    if _is_ours(rules, name):
        return
    raise ForbiddenOrigin(f"Host is {name[:80]!r}; expected localhost, an IP address, or a name listed in server.hosts.")


def check_origin(rules: Access, origin: str | None, host_header: str | None) -> None:
    """Refuse a page of another site; no Origin means no browser. Raises `ForbiddenOrigin`."""
    if origin is None or origin.rstrip("/").lower() in rules.origins:
        return
    scheme, _, place = origin.rstrip("/").lower().partition("://")
    if scheme in ("http", "https") and place and place == (host_header or "").lower():
        return
    raise ForbiddenOrigin(f"Origin is {origin[:80]!r}; expected the gateway's own page or an origin listed in server.origins.")


def check_may_come(rules: Access, origin: str) -> None:
    """Refuse what is to be for a page that no door would ever let in. Raises `BadMessage`.

    Under which name the gateway is reached is not known yet: its own page may stand under each that `check_host` takes.
    """
    scheme, _, place = origin.rstrip("/").lower().partition("://")
    if origin.rstrip("/").lower() in rules.origins:
        return
    if scheme in _OWN_PORT and _PLACE.fullmatch(place) and not place.endswith(_OWN_PORT[scheme]) and _is_ours(rules, _host_name(place)):
        return
    listed = ", ".join(sorted(rules.origins)) or "empty"
    raise BadMessage(
        f"origin is {origin[:80]!r}, whose pages may not connect; expected SCHEME://HOST[:PORT] as a browser writes it, of server.origins "
        f"({listed}) or of the gateway's own page (localhost, an IP address, a name in server.hosts)."
    )


def check_key(rules: Access, headers: Mapping[str, str], subprotocols: Sequence[str], prefix: str) -> Rights:
    """What the shown key may do: `Authorization: Bearer K`, `api-key: K`, or the subprotocol `<prefix>K`. Raises `Unauthorized`.

    Where no keys are configured, everyone may do everything.
    """
    return rights_of(rules, shown_key(headers, subprotocols, prefix), prefix)


def shown_key(headers: Mapping[str, str], subprotocols: Sequence[str], prefix: str) -> str | None:
    """The key, or the ticket, that a client shows; None or one that is not empty."""
    key = _bearer(headers.get("authorization", "")) or headers.get("api-key", "").strip()
    return key or offered(subprotocols, prefix)


def offered(subprotocols: Sequence[str], prefix: str) -> str | None:
    """What a browser says among its subprotocols behind a prefix."""
    return next((offer.removeprefix(prefix) for offer in subprotocols if offer.startswith(prefix)), None) or None


def rights_of(rules: Access, key: str | None, prefix: str) -> Rights:
    """What this key may do. `prefix`: of the subprotocol in which a browser could have shown one. Raises `Unauthorized`."""
    if not rules.needs_key:
        return FULL_RIGHTS
    if key is None:
        raise Unauthorized(f"No key; expected `Authorization: Bearer KEY`, or from a browser the subprotocol `{prefix}KEY`.")
    digest = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    matches = [hmac.compare_digest(digest, known) for known in rules.key_hashes]  # every key is compared, always
    if not any(matches):
        raise WrongKey("The key is not known here.")
    return rules.key_rights[matches.index(True)]


def as_of_now(rules: Access, granted: Rights) -> Rights:
    """What a ticket grants now: no more than when it was made, and no more than its key may still do.

    Raises `Unauthorized` where that key is gone, `NotPermitted` where it may not speak as the ticket's persona any more.
    """
    if not rules.needs_key:
        return granted
    key = next((own for own in rules.key_rights if own.holder == granted.holder), None)
    if key is None:
        raise Unauthorized("The key that this ticket was made with is not known here any more; expected a ticket of a key that is.")
    if key.persona and granted.persona not in ("", key.persona):
        raise NotPermitted(f"The ticket speaks as {granted.persona!r}, and its key may now as {key.persona!r} alone; ask for a new one.")
    return structs.replace(
        key,
        persona=granted.persona or key.persona,
        instructions=key.instructions and granted.instructions,
        tools=key.tools and granted.tools,
        user=granted.user,
    )


def _bearer(header: str) -> str | None:
    scheme, _, key = header.partition(" ")
    return key.strip() if scheme.lower() == "bearer" and key.strip() else None


def _is_ours(rules: Access, name: str) -> bool:
    return name in LOCAL_NAMES or name in rules.hosts or _is_address(name)


def _host_name(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
