"""Work left to a thread: bounded, in order, and given up at a deadline."""

from __future__ import annotations

import threading

import pytest

from gateway.backlog import Backlog


def test_items_are_worked_off_in_order() -> None:
    seen: list[int] = []
    backlog: Backlog[int] = Backlog("test", 1000, seen.extend, 0.0)
    assert all(backlog.put(n) for n in range(700))
    assert backlog.close(60) == 0
    assert seen == list(range(700))


def test_a_full_backlog_refuses_and_a_closed_one_too() -> None:
    free = threading.Event()
    backlog: Backlog[int] = Backlog("test", 3, lambda _: free.wait(60), 0.0)
    backlog.put(0)
    while backlog._items:  # until the thread hangs on it
        pass
    assert [backlog.put(n) for n in range(4)] == [True, True, True, False]
    free.set()
    assert backlog.close(60) == 0
    assert not backlog.put(5)


def test_what_hangs_is_given_up_at_the_deadline_and_counted() -> None:
    free = threading.Event()
    backlog: Backlog[int] = Backlog("test", 10, lambda _: free.wait(60), 0.0)
    backlog.put(0)
    while backlog._items:
        pass
    backlog.put(1)
    backlog.put(2)
    assert backlog.close(0.05) == 3, "the one that hangs, and the two behind it"
    free.set()


def test_a_batch_that_fails_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[int] = []

    def work(batch: list[int]) -> None:
        if 1 in batch:
            raise ValueError("bad item")
        seen.extend(batch)

    backlog: Backlog[int] = Backlog("test", 10, work, 0.0)
    backlog.put(1)
    while backlog._items or backlog._n_taken:
        pass
    backlog.put(2)
    assert backlog.close(60) == 0
    assert seen == [2]
    assert "backlog failed" in caplog.text
