"""Who may read `/metrics`, and where."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from typing import Any

import pytest

from gateway.config import ConfigError, check
from tests.running import Running, gateway

KEYS = {"STRETTO_KEYS": "alpha", "STRETTO_METRICS__KEY": "scrape-key"}


def asked(url: str, key: str | None = None, **headers: str) -> int:
    """The status of a GET; a page that is answered is the metrics."""
    headers |= {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            assert b"stretto_sessions" in answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code


def own_url(running: Running) -> str:
    line = next(line for line in running.lines if line.startswith("  metrics on "))
    found = re.search(r":(\d+)/metrics", line)
    assert found is not None
    return f"http://127.0.0.1:{found[1]}"


def test_a_key_of_its_own_opens_metrics_and_nothing_else() -> None:
    with gateway(KEYS) as running:
        url = running.http_url
        assert [asked(f"{url}/metrics", key) for key in (None, "alpha", "wrong", "scrape-key")] == [401, 401, 401, 200]
        assert asked(f"{url}/v1/voice", "scrape-key") == 401
        assert asked(f"{url}/v1/realtime", "scrape-key") == 401
        request = urllib.request.Request(f"{url}/v1/tickets", b"", {"Authorization": "Bearer scrape-key"}, method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        with caught.value:
            assert caught.value.code == 401


def test_on_an_address_of_its_own_there_is_nothing_else_and_none_is_left_on_the_common_port() -> None:
    with gateway({"STRETTO_KEYS": "alpha", "STRETTO_METRICS__HOST": "127.0.0.1", "STRETTO_METRICS__PORT": "0"}) as running:
        own = own_url(running)
        assert asked(f"{own}/metrics") == 200
        assert asked(f"{own}/metrics", Host="evil.example") == 403, "a name that was bound to our address by another site"
        for path in ("/", "/readyz", "/v1/voice", "/v1/realtime", "/web/app.js", "/v1/tickets"):
            assert asked(own + path, "alpha") == 404
        assert asked(f"{running.http_url}/metrics", "alpha") == 404
        assert running.stop() == 0


def test_an_address_and_a_key_of_its_own_go_together() -> None:
    with gateway(KEYS | {"STRETTO_METRICS__HOST": "127.0.0.1", "STRETTO_METRICS__PORT": "0"}) as running:
        assert [asked(f"{own_url(running)}/metrics", key) for key in (None, "alpha", "scrape-key")] == [401, 401, 200]


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"metrics": {"host": "0.0.0.0"}}, r"metrics\.key is empty"),
        ({"metrics": {"key": "two words"}}, r"metrics\.key"),
        ({"metrics": {"port": 70000}}, r"metrics\.port"),
    ],
)
def test_what_would_show_metrics_to_strangers_stops_the_start(tree: dict[str, Any], told: str) -> None:  # Any: TOML
    with pytest.raises(ConfigError, match=told):
        check(tree)


def test_a_taken_port_of_the_metrics_is_told_by_its_setting() -> None:
    with gateway() as running:
        taken = {"STRETTO_METRICS__HOST": "127.0.0.1", "STRETTO_METRICS__PORT": str(running.port)}
        with pytest.raises(AssertionError, match=r"metrics\.port takes another one"), gateway(taken):
            pass
