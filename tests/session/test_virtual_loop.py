"""The virtual clock itself, and the rules that `tests/conftest.py` holds every test to."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.session.virtual_loop import START_S, VirtualLoop, VirtualTimeStuck, WatchedSelector

pytest_plugins = ["pytester"]


async def test_an_hour_passes_at_once_and_exactly() -> None:
    loop, real = asyncio.get_running_loop(), time.monotonic()
    assert isinstance(loop, VirtualLoop)
    start = loop.time()
    await asyncio.sleep(3600)
    assert loop.time() - start == 3600
    assert time.monotonic() - real < 60


async def test_timers_run_in_order_of_their_due_time() -> None:
    order: list[str] = []

    async def note(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        order.append(name)

    async with asyncio.TaskGroup() as tasks:
        for name, delay_s in (("c", 0.3), ("a", 0.1), ("b", 0.2)):
            tasks.create_task(note(name, delay_s))
    assert order == ["a", "b", "c"]


async def test_timeout_works_on_virtual_time() -> None:
    start = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() - start == pytest.approx(5)


async def test_many_uneven_timers_do_not_drift() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    for _ in range(1000):
        await asyncio.sleep(0.0201)
    assert loop.time() - start == pytest.approx(20.1, abs=1e-6)


async def test_a_call_in_a_thread_returns_before_time_jumps() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    async with asyncio.timeout(1):
        assert await asyncio.to_thread(sum, range(100_000)) == 4_999_950_000
    assert loop.time() == start


async def test_sockets_work() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.close()
        await writer.wait_closed()


def test_time_does_not_start_at_zero() -> None:
    loop = VirtualLoop()
    assert loop.time() == START_S
    loop.close()


def test_waiting_for_nothing_fails_and_names_who_waits() -> None:
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    loop = VirtualLoop()
    task = loop.create_task(wait_for_ever(), name="patient")
    with pytest.raises(VirtualTimeStuck, match=r"patient waits at .*test_virtual_loop"):
        loop.run_until_complete(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()


@pytest.fixture
def rules(pytester: pytest.Pytester) -> pytest.Pytester:
    """An empty folder of tests under the rules of `tests/conftest.py`."""
    root = Path(__file__).parents[2]
    pytester.makeini(f"[pytest]\npythonpath = {root}\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest("from tests.conftest import *\nfrom tests.conftest import pytest_asyncio_loop_factories, pytest_itemcollected\n")
    return pytester


def test_a_leaked_task_fails_the_test(rules: pytest.Pytester) -> None:
    rules.makepyfile("""
        import asyncio
        async def test_leak():
            globals()["kept"] = asyncio.get_running_loop().create_task(asyncio.sleep(60), name="forgotten")
    """)
    result = rules.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*leaked tasks: forgotten*"])


def test_a_blocked_loop_fails_the_test(rules: pytest.Pytester) -> None:
    rules.makepyfile("""
        import time
        import tests.conftest
        tests.conftest.LONGEST_BLOCK_S = 0.5
        async def test_block():
            time.sleep(2.0)
    """)
    result = rules.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the event loop was blocked for *"])


def test_time_without_a_core_and_what_is_meant_is_no_block(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, held_s = [10.0], [0.0]
    monkeypatch.setattr("tests.session.virtual_loop.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr("tests.session.virtual_loop.held_up_s", lambda: held_s[0])
    selector = WatchedSelector()
    selector.select(0)
    now_s[0], held_s[0] = 15.0, 4.5
    selector.select(0)
    assert selector.longest_block_s == pytest.approx(0.5)
    now_s[0] = 99.0
    selector.pause()
    selector.select(0)
    assert selector.longest_block_s == pytest.approx(0.5)
    now_s[0] = 101.0
    selector.select(0)
    assert selector.longest_block_s == pytest.approx(2.0)
    selector.close()
