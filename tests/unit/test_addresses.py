"""Whose address it is, behind proxies that are ours and headers that may be forged."""

from __future__ import annotations

import pytest

from gateway.addresses import MAX_HOPS, client_of, counted, networks
from gateway.config import ConfigError, check

OURS = networks(("10.0.0.0/8", "192.0.2.7", "fd00::/8", "::1"))
CLIENT = "203.0.113.9"


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("10.0.0.1", [CLIENT], CLIENT),
        ("10.0.0.1", [f"198.51.100.1, {CLIENT}"], CLIENT),  # what the client wrote itself stands further left
        ("10.0.0.1", [f"{CLIENT}, 10.9.9.9"], CLIENT),  # two proxies of ours in a row
        ("10.0.0.1", ["198.51.100.1", f"{CLIENT} , 192.0.2.7"], CLIENT),  # a header of its own for each proxy
        ("10.0.0.1", [f"{CLIENT}:50123"], CLIENT),
        ("10.0.0.1", ["[2001:db8::9]:443"], "2001:db8::9"),
        ("10.0.0.1", ["2001:db8::9"], "2001:db8::9"),
        ("fd00::1", [CLIENT], CLIENT),
        ("::ffff:10.0.0.1", [CLIENT], CLIENT),  # as a socket of both families has it
        ("::1", [f"::1, {CLIENT}, ::1"], CLIENT),
        ("10.0.0.1", ["10.1.1.1"], "10.1.1.1"),  # a client in our own network
        ("10.0.0.1", [], "10.0.0.1"),
        (CLIENT, ["198.51.100.1"], CLIENT),  # forged: the peer is no proxy of ours
        (CLIENT, ["10.0.0.1", "192.0.2.7"], CLIENT),
        ("192.0.2.8", ["198.51.100.1"], "192.0.2.8"),
        ("10.0.0.1", [f"198.51.100.1, {CLIENT}, 192.0.2.8"], "192.0.2.8"),  # a proxy that is not ours: what it wrote is not believed
        ("10.0.0.1", ["unknown"], "10.0.0.1"),
        ("10.0.0.1", [f"{CLIENT}, unknown, 10.2.2.2"], "10.2.2.2"),
        ("10.0.0.1", ["", " , ,"], "10.0.0.1"),
        ("10.0.0.1", ["\x00\udce9", "1.2.3.4.5"], "10.0.0.1"),
        ("", [CLIENT], ""),
    ],
)
def test_the_header_is_read_from_the_right_and_no_further_than_our_proxies_wrote_it(peer: str, forwarded: list[str], client: str) -> None:
    assert client_of(peer, forwarded, OURS) == client


def test_without_trusted_proxies_the_header_says_nothing() -> None:
    assert client_of("127.0.0.1", [CLIENT], ()) == "127.0.0.1"


def test_a_header_of_any_length_is_read_from_its_end_alone() -> None:
    assert client_of("10.0.0.1", [", ".join(["198.51.100.1"] * 5000 + [CLIENT])], OURS) == CLIENT
    assert client_of("10.0.0.1", [", ".join([CLIENT] + ["10.0.0.2"] * MAX_HOPS)], OURS) == "10.0.0.2"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::7", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("203.0.113.9", "203.0.113.8", False),
        ("::ffff:203.0.113.9", "203.0.113.9", True),
        ("2001:DB8::1", "2001:db8:0::2", True),
    ],
)
def test_all_addresses_of_an_ipv6_network_count_as_one(one: str, other: str, is_same: bool) -> None:
    assert (counted(one) == counted(other)) is is_same


@pytest.mark.parametrize("block", ["10.0.0.0/33", "10.0.0.1/8", "proxy.example", "", "0.0.0.0/0", "::/0"])
def test_proxies_that_are_none_stop_the_start(block: str) -> None:
    with pytest.raises(ConfigError, match="trusted_proxies"):
        check({"server": {"trusted_proxies": [block]}})
