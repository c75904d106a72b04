"""Rules that hold for every test: no leaked task, no blocked loop, virtual time in `tests/session/`.

Markers: `virtual` gives a test outside `tests/session/` virtual time; `real_time` takes it from one inside;
`may_block` excuses a test that loads something heavy on its loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio

from tests.session.virtual_loop import VirtualLoop, WatchedLoop

LONGEST_BLOCK_S = 3.0  # the rule is 5 ms; three test files on two shared cores are not what this catches
SESSION_TESTS = Path(__file__).parent / "session"


def pytest_configure(config: pytest.Config) -> None:
    with contextlib.suppress(ImportError):  # vLLM's environment has no Hypothesis, nor tests for it
        from hypothesis import HealthCheck, settings

        settings.register_profile("a slow day", deadline=None, suppress_health_check=[HealthCheck.too_slow])
        settings.load_profile("a slow day")
    config.addinivalue_line("markers", "virtual: this test's loop has virtual time")
    config.addinivalue_line("markers", "real_time: this test's loop has real time, although it stands in tests/session")
    config.addinivalue_line("markers", "may_block: this test may block its loop for seconds")


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual": VirtualLoop} if is_virtual(item) else {"real": WatchedLoop}


def is_virtual(item: pytest.Item) -> bool:
    if item.get_closest_marker("virtual") is not None:
        return True
    return SESSION_TESTS in item.path.parents and item.get_closest_marker("real_time") is None


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
        item.fixturenames.insert(0, "orderly_loop")


@pytest_asyncio.fixture
async def orderly_loop(request: pytest.FixtureRequest) -> AsyncGenerator[None, None]:
    """Fails a test that leaves a task running, or that blocked its loop; set up first, so it looks last."""
    before = asyncio.all_tasks()
    yield
    for _ in range(5):  # tasks that are just ending, and async generators being closed
        await asyncio.sleep(0)
    leaked = asyncio.all_tasks() - before - {asyncio.current_task()}
    if leaked:
        pytest.fail("leaked tasks: " + ", ".join(f"{t.get_name()} ({t.get_coro()!r})" for t in leaked), pytrace=False)
    loop = asyncio.get_running_loop()
    if isinstance(loop, WatchedLoop) and loop.longest_block_s > LONGEST_BLOCK_S and not request.node.get_closest_marker("may_block"):
        pytest.fail(f"the event loop was blocked for {loop.longest_block_s:.2f} s; the bound is {LONGEST_BLOCK_S} s", pytrace=False)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A test that runs a whole command configures the log to the standard error of that test, which is closed for the next one."""
    loggers = [logging.getLogger(name) for name in (None, "uvicorn.error", "asyncio")]
    before = [(logger.level, list(logger.handlers), list(logger.filters)) for logger in loggers]
    yield
    for logger, (level, handlers, filters) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers[:], logger.filters[:] = handlers, filters


@pytest_asyncio.fixture
async def virtual() -> VirtualLoop:
    """The running virtual loop. Raises when the test has a real one."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this test has real time; mark it @pytest.mark.virtual or move it to tests/session"
    return loop
