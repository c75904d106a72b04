"""Who may connect."""

from __future__ import annotations

import io
from typing import Any

import pytest
from msgspec import structs

from gateway.__main__ import main
from gateway.auth import FULL_RIGHTS, Rights, access, as_of_now, check_host, check_key, check_may_come, check_origin, hashed
from gateway.config import ConfigError, KeySettings, check
from gateway.errors import BadMessage, ForbiddenOrigin, NotPermitted, Unauthorized

OPEN = access((), (), ())
KEYED = access(("alpha", "beta"), ("https://app.example",), ("voice.example",))
PREFIX = "stretto-key."


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "192.168.1.7:8080", "voice.example", "VOICE.example:443"])
def test_local_names_addresses_and_listed_hosts_pass(host: str) -> None:
    check_host(KEYED, host)


@pytest.mark.parametrize("host", [None, "", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example", "[::1", "a@b"])
def test_any_other_host_is_rebinding(host: str | None) -> None:
    with pytest.raises(ForbiddenOrigin, match="Host"):
        check_host(KEYED, host)


@pytest.mark.parametrize("origin", [None, "http://localhost:8080", "https://app.example", "https://APP.example/"])
def test_no_browser_the_own_page_and_listed_pages_pass(origin: str | None) -> None:
    check_origin(KEYED, origin, "localhost:8080")


OURS = [
    "https://app.example",
    "https://APP.example/",
    "http://localhost:8080",
    "http://[::1]:8080",
    "https://voice.example",
    "https://10.0.0.7:8443",
]


@pytest.mark.parametrize("origin", OURS)
def test_a_page_that_some_door_would_let_in_may_have_tickets(origin: str) -> None:
    check_may_come(KEYED, origin)


@pytest.mark.parametrize("origin", OURS[2:])
def test_an_own_page_that_may_have_tickets_is_let_in_where_it_stands(origin: str) -> None:
    host = origin.partition("://")[2]
    check_host(KEYED, host)
    check_origin(KEYED, origin, host)


@pytest.mark.parametrize(
    "origin",
    [
        "https://other.example", "http://app.example", "https://app.example:8443", "app.example", "null", "https://", "ftp://localhost",
        "http://localhost/page", "http://localhost?a", "http://me@localhost", "http://localhost:80", "https://localhost:443", "http://[::1",
    ],
)  # fmt: skip
def test_a_page_that_no_door_lets_in_may_have_none(origin: str) -> None:
    with pytest.raises(BadMessage) as refused:
        check_may_come(KEYED, origin)
    assert repr(origin) in str(refused.value)
    assert "server.origins (https://app.example)" in str(refused.value)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9090", "file://", "https://app.example.evil", "", "http://[", "http://"]
)
def test_foreign_pages_are_refused(origin: str) -> None:
    with pytest.raises(ForbiddenOrigin, match="Origin"):
        check_origin(KEYED, origin, "localhost:8080")


def test_without_keys_everyone_may() -> None:
    check_key(OPEN, {}, (), PREFIX)


@pytest.mark.parametrize(
    ("headers", "offers"),
    [({"authorization": "Bearer alpha"}, ()), ({"authorization": "bearer  beta"}, ()), ({}, ("stretto.msgpack.v1", "stretto-key.beta"))],
)
def test_a_known_key_passes(headers: dict[str, str], offers: tuple[str, ...]) -> None:
    check_key(KEYED, headers, offers, PREFIX)


@pytest.mark.parametrize(
    ("headers", "offers"),
    [
        ({}, ()),
        ({"authorization": "Bearer "}, ()),
        ({"authorization": "Basic alpha"}, ()),
        ({"authorization": "Bearer gamma"}, ()),
        ({"authorization": "Bearer gamma"}, ("stretto-key.alpha",)),
        ({}, ("stretto-key.",)),
        ({"authorization": "Bearer alph\u00e9\udce9"}, ()),
    ],
)
def test_a_wrong_or_missing_key_is_refused_without_showing_it(headers: dict[str, str], offers: tuple[str, ...]) -> None:
    with pytest.raises(Unauthorized) as caught:
        check_key(KEYED, headers, offers, PREFIX)
    assert "gamma" not in str(caught.value)


def test_an_empty_key_opens_nothing() -> None:
    rules = access(("",), (), ())
    with pytest.raises(Unauthorized):
        check_key(rules, {}, ["stretto-key."], "stretto-key.")


def test_an_isolated_key_has_a_salt_of_its_own_that_tells_nothing_and_stays() -> None:
    keys = {"a": KeySettings(key="alpha", isolate=True), "b": KeySettings(key="beta", isolate=True), "c": KeySettings(key="gamma")}

    def salts() -> list[str | None]:
        rules = access(("delta",), (), (), keys)
        shown = [{"authorization": f"Bearer {key}"} for key in ("alpha", "beta", "gamma", "delta")]
        return [check_key(rules, headers, (), PREFIX).cache_salt for headers in shown]

    alpha, beta, gamma, delta = salts()
    assert alpha is not None
    assert beta is not None
    assert alpha != beta
    assert "alpha" not in alpha
    assert (gamma, delta) == (None, None), "keys without it share"
    assert salts() == [alpha, beta, None, None], "a restart finds its cache again"


def test_a_key_that_is_kept_as_its_hash_opens_and_the_hash_does_not() -> None:
    named = {"kiosk": KeySettings(key=hashed("delta"), tools=False, isolate=True)}
    rules = access((hashed("gamma"), "plain"), (), (), named)
    plain = access(("gamma", "plain"), (), (), {"kiosk": KeySettings(key="delta", tools=False, isolate=True)})
    assert rules == plain
    assert not check_key(rules, {"api-key": "delta"}, (), PREFIX).tools
    for key in ("gamma", "plain"):
        check_key(rules, {"api-key": key}, (), PREFIX)
    for wrong in (hashed("gamma"), hashed("gamma").removeprefix("sha256:"), hashed("plain")):
        with pytest.raises(Unauthorized):
            check_key(rules, {"api-key": wrong}, (), PREFIX)


def test_every_known_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return one == other

    monkeypatch.setattr("hmac.compare_digest", watched)
    check_key(KEYED, {"api-key": "alpha"}, (), PREFIX)
    assert compared == list(KEYED.key_hashes), "the first match does not end the search"


def test_a_made_key_opens_by_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key"]) == 0
    key, kept = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    assert len(key) == 43
    check_key(access((kept,), (), ()), {"api-key": key}, (), PREFIX)


def test_an_older_key_gets_its_hash(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("alpha\n"))
    assert main(["key", "--hash"]) == 0
    assert capsys.readouterr().out == hashed("alpha") + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["key", "--hash"]) == 2


@pytest.mark.parametrize("key", ["sha256:", "sha256:abc", "sha256:" + "g" * 64, "tkt_secret", "ek_secret"])
def test_a_key_that_could_never_open_stops_the_start_and_is_not_shown(key: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.keys") as caught:
        check({"server": {"keys": [key]}})
    assert "secret" not in str(caught.value)


NAMED = {"kiosk": KeySettings(key="k", persona="captain", tools=False), "free": KeySettings(key="f")}
NOW = access((), (), (), NAMED)


def rights_then(of_key: str, **then: Any) -> Rights:  # Any: the rights' values
    """Of a ticket that was made when its key might do everything."""
    return structs.replace(NOW.key_rights[list(NAMED).index(of_key)], **{"persona": "", "tools": True, **then})


def test_a_ticket_grants_what_its_key_may_now() -> None:
    assert as_of_now(NOW, rights_then("free", user="ann")) == structs.replace(NOW.key_rights[1], user="ann")
    narrow = rights_then("free", instructions=False, persona="nurse")
    assert as_of_now(NOW, narrow) == narrow
    assert as_of_now(NOW, rights_then("kiosk", user="ann")) == structs.replace(NOW.key_rights[0], user="ann")
    assert as_of_now(NOW, rights_then("kiosk", persona="captain", name="old", capture=True)) == NOW.key_rights[0]


def test_a_ticket_whose_key_is_gone_or_may_not_speak_so_any_more_opens_nothing() -> None:
    with pytest.raises(Unauthorized, match="not known here any more"):
        as_of_now(NOW, rights_then("free", holder="another"))
    with pytest.raises(Unauthorized):
        as_of_now(NOW, FULL_RIGHTS)
    with pytest.raises(NotPermitted, match=r"'nurse'.*'captain'"):
        as_of_now(NOW, rights_then("kiosk", persona="nurse"))
    assert as_of_now(OPEN, rights_then("kiosk")) == rights_then("kiosk"), "where no keys are, a ticket is what it was"
