"""What a key has used within a sliding time, and when it may go on."""

from __future__ import annotations

import random

import msgspec
import pytest

from gateway.config import KeySettings
from gateway.errors import QuotaExceeded, TooManySessions
from gateway.quota import DAY_S, HOUR_S, LIMITS, MINUTE_S, N_SLOTS, Account, Quota, SlidingSum, wait_s


def bounded(**limits: int) -> Account:
    return Quota({"kiosk": msgspec.convert({"key": "k", **limits}, KeySettings)}).of("kiosk")


def test_a_sum_never_holds_less_than_what_was_added_within_its_time_and_forgets_a_sixtieth_later() -> None:
    chance = random.Random(7)
    used, added, now = SlidingSum(60.0), [], 0.0
    for _ in range(2000):
        now += chance.choice((0.0, 0.1, 1.0, 7.0, 70.0)) * chance.random()
        amount = chance.randint(1, 5)
        used.add(amount, now)
        added.append((now, amount))
        within = sum(n for at, n in added if at > now - 60)
        with_grain = sum(n for at, n in added if at > now - 60 - 60 / N_SLOTS)
        assert within <= used.used(now) <= with_grain


def test_a_sum_keeps_a_bounded_number_of_parts() -> None:
    used = SlidingSum(60.0)
    for tick in range(100_000):
        used.add(1, tick * 0.01)
        used.used(tick * 0.01)
    assert len(used._slots) <= N_SLOTS + 2


def test_after_the_told_wait_there_is_room_and_not_much_before() -> None:
    chance = random.Random(3)
    for _ in range(200):
        used, now = SlidingSum(60.0), 1000.0
        for _ in range(chance.randint(1, 30)):
            now += chance.random() * 4
            used.add(chance.randint(1, 9), now)
        limit = chance.randint(1, max(1, round(used.used(now))))
        if used.used(now) < limit:
            continue
        left_s = wait_s(used.parts(now), limit)
        assert 0 < left_s <= 61
        assert used.used(now + left_s + 1e-6) < limit


def test_a_turn_beyond_the_minute_is_refused_with_when_to_come_back() -> None:
    account = bounded(turns_per_min=2)
    for now in (0.0, 10.0):
        assert account.turn_refusal(now) is None
        account.begin_turn(now)
    refusal = account.turn_refusal(20.0)
    assert refusal is not None
    assert (refusal.code, refusal.limit, refusal.retryable, refusal.http_status) == ("quota_exceeded", "turns", True, 429)
    assert "2 turns a minute" in str(refusal)
    assert refusal.retry_after_ms is not None
    assert account.turn_refusal(20.0 + refusal.retry_after_ms / 1000) is None


@pytest.mark.parametrize(
    ("limits", "spent", "limit", "over_s"),
    [
        ({"tokens_per_h": 100}, (99, 0.0), "tokens_hour", HOUR_S),
        ({"tokens_per_day": 100}, (99, 0.0), "tokens_day", DAY_S),
        ({"audio_s_per_h": 10}, (0, 9.5), "audio", HOUR_S),
    ],
)
def test_what_is_used_up_comes_back_with_time(limits: dict[str, int], spent: tuple[int, float], limit: str, over_s: float) -> None:
    account = bounded(**limits)
    account.spend(*spent, 0.0)
    assert account.turn_refusal(0.0) is None, "what is left may be used"
    account.spend(70, 0.5, 0.0)
    refusal = account.turn_refusal(1.0)
    assert refusal is not None
    assert refusal.limit == limit
    assert account.turn_refusal(over_s - 1) is not None
    assert account.turn_refusal(over_s * (1 + 1 / N_SLOTS)) is None


def test_conversations_at_once_are_bounded() -> None:
    account = bounded(sessions=2)
    account.n_sessions = 1
    assert account.session_refusal(0.0) is None
    account.n_sessions = 2
    refusal = account.session_refusal(0.0)
    assert isinstance(refusal, TooManySessions)
    assert refusal.close == 1013


def test_a_key_without_limits_is_counted_and_never_refused() -> None:
    account = Quota().of("other")
    for _ in range(10_000):
        account.begin_turn(0.0)
    account.spend(10**9, 10**9, 0.0)
    account.n_sessions = 10**6
    assert (account.turn_refusal(0.0), account.session_refusal(0.0)) == (None, None)
    assert account.turns.used(MINUTE_S / 2) == 10_000


def test_each_key_has_its_own_account() -> None:
    quota = Quota({"one": KeySettings(key="1", turns_per_min=1), "two": KeySettings(key="2", turns_per_min=1)})
    quota.of("one").begin_turn(0.0)
    assert isinstance(quota.of("one").turn_refusal(0.0), QuotaExceeded)
    assert quota.of("two").turn_refusal(0.0) is None
    assert {account.name for account in quota.accounts()} == {"one", "two"}
    assert {bounded(turns_per_min=1).name, *LIMITS} == {"kiosk", "sessions", "turns", "tokens_hour", "tokens_day", "audio"}
