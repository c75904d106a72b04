"""Where conversations live: `Homes`, the rule of the shipped router."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "configs" / "ray" / "session_router.py"


@pytest.fixture
def rule(monkeypatch: pytest.MonkeyPatch) -> Any:  # Any: a module outside of the packages
    """The file, loaded without Ray."""
    for name, parts in {
        "ray": (),
        "ray.serve": (),
        "ray.serve.experimental": (),
        "ray.serve.experimental.consistent_hash_router": ("ConsistentHashRouter",),
        "ray.serve.request_router": ("PendingRequest", "RunningReplica"),
    }.items():
        stand_in = ModuleType(name)
        for part in parts:
            setattr(stand_in, part, object)
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location("session_router", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_session_stays_when_replicas_come(rule: Any) -> None:
    homes = rule.Homes()
    before = {f"s{n}": homes.home(f"s{n}", ["a"], 0.0) for n in range(10)}
    after = {session: homes.home(session, ["a", "b", "c"], 1.0) for session in before}
    assert after == before


def test_new_sessions_go_where_the_fewest_live(rule: Any) -> None:
    homes = rule.Homes()
    for n in range(4):
        homes.home(f"old{n}", ["a"], 0.0)
    new = [homes.home(f"new{n}", ["a", "b"], 1.0) for n in range(4)]
    assert new == ["b"] * 4
    assert Counter(homes.home(f"more{n}", ["a", "b"], 2.0) for n in range(6)) == {"a": 3, "b": 3}


def test_sessions_of_a_lost_replica_spread_over_the_others(rule: Any) -> None:
    homes = rule.Homes()
    first = {f"s{n}": homes.home(f"s{n}", ["a", "b", "c"], 0.0) for n in range(9)}
    second = {session: homes.home(session, ["b", "c"], 1.0) for session in first}
    assert all(second[session] == home for session, home in first.items() if home != "a")
    assert sorted(Counter(second.values()).values()) == [4, 5]


def test_without_replicas_there_is_no_home(rule: Any) -> None:
    assert rule.Homes().home("s", [], 0.0) is None


def test_silent_sessions_are_forgotten_and_memory_is_bounded(rule: Any) -> None:
    homes = rule.Homes(forget_after_s=10.0, most=3)
    homes.home("gone", ["a"], 0.0)
    assert homes.home("new", ["a", "b"], 11.0) == "a", "nobody lives in a any more"
    for n in range(50):
        homes.home(f"s{n}", ["a", "b"], 12.0)
    assert len(homes._homes) <= 3
    assert sum(homes._tenants.values()) == len(homes._homes)
