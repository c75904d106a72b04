"""Whose address it is: the socket's peer, or behind our own proxies the client that they saw.

Pure. `X-Forwarded-For` is a list that each proxy appends to, so that only its right end is to be believed, and only as far as trusted
proxies wrote it: it is read from the right until an address that is none of theirs. Whatever a client put there itself stands further left.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence

Networks = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
IPV6_BITS = 64  # the smallest network that a provider gives to one customer: its addresses are one client's
MAX_HOPS = 16  # proxies in a row; what is further left is not looked at


def networks(blocks: Iterable[str]) -> Networks:
    """From CIDR blocks or single addresses. Raises `ValueError`."""
    return tuple(ipaddress.ip_network(block) for block in blocks)


def is_trusted(address: str, trusted: Networks) -> bool:
    """Whether it is one of our proxies."""
    known = _parsed(address)
    return known is not None and any(known in network for network in trusted)


def client_of(peer: str, forwarded: Sequence[str], trusted: Networks) -> str:
    """The client's address. `forwarded`: the values of all X-Forwarded-For headers, in order. What cannot be read ends the search."""
    found = peer
    hops = [hop.strip() for header in forwarded for hop in header.split(",")]
    for hop in reversed(hops[-MAX_HOPS:]):
        if not is_trusted(found, trusted):
            break
        address = _without_port(hop)
        if _parsed(address) is None:
            break
        found = address
    return found


def counted(address: str) -> str:
    """What is counted as one client: an IPv4 address, or the network of an IPv6 one."""
    known = _parsed(address)
    if isinstance(known, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((known, IPV6_BITS), strict=False))
    return address if known is None else str(known)


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return None
    return (known.ipv4_mapped or known) if isinstance(known, ipaddress.IPv6Address) else known


def _without_port(hop: str) -> str:
    if hop.startswith("["):
        return hop[1:].partition("]")[0]
    return hop.partition(":")[0] if hop.count(":") == 1 else hop
