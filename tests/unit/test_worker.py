"""The worker: real child processes, killed, hung and refused."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from engine.api import ContextTooLong, EngineBusy, EngineError, EngineNotReady, EngineSetupError, EngineStalled
from engine.worker import Worker, WorkerSpec
from engine.worker.frames import MAX_FRAME_BYTES, BrokenStream, Frame, FrameReader, Kind, encode
from tests.unit import worker_stages

STAGES = worker_stages.__name__
PATIENCE_S = 60.0  # nothing here should take a second; two shared cores can
TRIES = 8  # at a short limit, which a busy machine may break now and then; a fault breaks it every time


@asynccontextmanager
async def running(stage: str = "Echo", **spec: Any) -> AsyncIterator[Worker]:  # Any: fields of WorkerSpec
    worker = Worker(WorkerSpec(name="test", factory=f"{STAGES}:{stage}", **spec))
    await worker.start()
    try:
        yield worker
    finally:
        await worker.close()


async def collect(stream: AsyncGenerator[Any, None]) -> list[Any]:  # Any: a stage's own messages
    async with asyncio.timeout(PATIENCE_S), aclosing(stream):
        return [message async for message in stream]


async def first(stream: AsyncGenerator[Any, None]) -> Any:  # Any: a stage's own message
    async with asyncio.timeout(PATIENCE_S):
        return await anext(stream)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fact():  # a poll: facts about processes have no event
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Not gone and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_stage_is_set_up_and_streams_its_answer() -> None:
    worker = Worker(WorkerSpec(name="test", factory=f"{STAGES}:Echo", setup={"a": [1, b"\x00\xff"]}))
    described = await worker.start()
    try:
        assert described == {"setup": {"a": [1, b"\x00\xff"]}, "pid": worker.pid}
        assert worker.health().ready
        assert await collect(worker.stream("r", {"say": ["one", b"\x00" * 100_000, {"k": 2}]})) == ["one", b"\x00" * 100_000, {"k": 2}]
        assert await collect(worker.stream("r", {})) == []
    finally:
        await worker.close()


def test_it_works_under_uvloop() -> None:
    async def talk() -> list[Any]:  # Any: a stage's own messages
        async with running() as worker:
            pid = worker.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            await until(lambda: worker.restarts >= 1 and worker.health().ready)
            return await collect(worker.stream("r", {"say": [1, 2, 3]}))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(talk()) == [1, 2, 3]


class CoarseLoop(asyncio.SelectorEventLoop):
    """Its clock stands still for 50 ms at a time, as uvloop's does for one: a heartbeat and its answer have the same time."""

    def time(self) -> float:
        return super().time() // 0.05 * 0.05


def test_a_heartbeat_answered_at_once_is_an_answer() -> None:
    async def lives() -> bool:
        async with running(heartbeat_s=0.1, silence_s=0.5) as worker:
            await asyncio.sleep(1.5)
            return worker.restarts == 0 and worker.health().ready

    with asyncio.Runner(loop_factory=CoarseLoop) as runner:
        assert any(runner.run(lives()) for _ in range(TRIES))


async def test_a_request_to_a_worker_that_was_never_started_is_refused() -> None:
    with pytest.raises(EngineNotReady, match="not started"):
        await collect(Worker(WorkerSpec(name="test", factory="x:y")).stream("r", {}))


@pytest.mark.parametrize(
    ("factory", "spec", "reason"),
    [
        (f"{STAGES}:refuse", {"setup": "/nowhere"}, "no weights at /nowhere"),
        (f"{STAGES}:die_loading", {}, "segmentation fault of some library"),
        (f"{STAGES}:missing", {}, "missing"),
        ("no_such_module:x", {}, "ModuleNotFoundError: No module named 'no_such_module'"),
        (f"{STAGES}:hang_loading", {"ready_s": 0.3, "heartbeat_s": 0.1}, "not ready within 0.3 s"),
    ],
)
async def test_a_stage_that_cannot_be_loaded_stops_the_start_and_says_why(factory: str, spec: dict[str, Any], reason: str) -> None:
    worker = Worker(WorkerSpec(name="test", factory=factory, **spec))
    with pytest.raises(EngineSetupError) as failure:
        await worker.start()
    assert reason in str(failure.value)
    assert worker.pid is None
    assert not worker.health().ready


async def test_kill_in_the_middle_ends_open_requests_at_once_and_the_next_ones_work() -> None:
    async with running() as worker:
        streams = [worker.stream(name, {"say": ["a"], "then": "hang"}) for name in ("x", "y")]
        assert await first(streams[0]) == "a"
        waiting = asyncio.gather(*(collect(stream) for stream in streams), return_exceptions=True)
        await asyncio.sleep(0)
        pid = worker.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            ends = await waiting
        assert [type(end) for end in ends] == [EngineNotReady, EngineNotReady]
        assert not worker.health().ready
        with pytest.raises(EngineNotReady):
            await collect(worker.stream("z", {}))
        await until(lambda: worker.health().ready)
        assert worker.pid != pid
        assert not is_alive(pid)
        assert await collect(worker.stream("x", {"say": ["again"]})) == ["again"]


async def test_a_stage_that_dies_by_itself_is_restarted_and_says_with_which_code() -> None:
    async with running(backoff_s=1.0) as worker:
        with pytest.raises(EngineNotReady):
            await collect(worker.stream("x", {"then": "die"}))
        await until(lambda: worker.restarts == 1)
        assert "exit code 3" in worker.health().detail
        await until(lambda: worker.health().ready)


async def test_restarts_back_off_while_the_stage_cannot_load(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    async with running("DiesOnce", setup=str(broken), backoff_s=0.01, backoff_max_s=0.04) as worker:
        broken.touch()
        os.kill(worker.pid or 0, signal.SIGKILL)
        await until(lambda: worker.restarts >= 3)
        assert "exit code 7" in worker.health().detail
        broken.unlink()
        await until(lambda: worker.health().ready)
        assert await collect(worker.stream("x", {"say": [1]})) == [1]


async def test_a_begun_request_without_progress_is_stalled_and_the_worker_restarted() -> None:
    async with running(stall_s=0.3, heartbeat_s=0.1) as worker:
        with pytest.raises(EngineStalled):
            await collect(worker.stream("x", {"say": [1], "then": "hang"}))
        await until(lambda: worker.restarts >= 1 and worker.health().ready)


async def test_a_waiting_request_is_not_stalled_by_the_one_before_it() -> None:
    for _ in range(TRIES):
        async with running("Turns", stall_s=0.4, heartbeat_s=0.05) as worker:
            asked = (collect(worker.stream("long", 1.0)), collect(worker.stream("waits", 0.1, priority=1)))
            both = list(await asyncio.gather(*asked, return_exceptions=True))
            if both == [["said"], ["said"]] and worker.restarts == 0:
                return
    pytest.fail(f"stalled each time: {both}")


async def test_a_request_cancelled_in_the_queue_may_wait_there_for_its_turn_to_leave() -> None:
    for _ in range(TRIES):
        async with running("Turns", stall_s=0.4, heartbeat_s=0.05) as worker:
            long = asyncio.ensure_future(collect(worker.stream("long", 1.5)))
            waits = asyncio.ensure_future(collect(worker.stream("waits", 0.1, priority=1)))
            await asyncio.sleep(0)
            worker.cancel("waits")
            said = list(await asyncio.gather(long, waits, return_exceptions=True))
            if said == [["said"], []] and worker.restarts == 0:
                return
    pytest.fail(f"stalled each time: {said}")


async def test_a_stage_that_holds_the_interpreter_is_found_by_its_heartbeat() -> None:
    async with running(silence_s=0.5, heartbeat_s=0.1, stall_s=600) as worker:
        with pytest.raises(EngineNotReady):
            await collect(worker.stream("x", {"then": "hold the interpreter"}))
        await until(lambda: worker.restarts >= 1 and worker.health().ready)


async def test_a_fault_in_a_handler_ends_its_request_alone_and_its_text_stays_inside(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with running() as worker:
        with pytest.raises(EngineError, match="the stage raised ValueError"):
            await collect(worker.stream("x", {"say": ["a secret"], "then": "raise"}))
        await until(lambda: any("ValueError at" in getattr(record, "line", "") for record in caplog.records))
        assert await collect(worker.stream("y", {"say": [1]})) == [1]
        assert worker.restarts == 0
    assert "a secret" not in "".join(str(record.__dict__) for record in caplog.records)


async def test_an_engine_error_keeps_its_class() -> None:
    async with running() as worker:
        with pytest.raises(ContextTooLong, match="5000 tokens"):
            await collect(worker.stream("x", {"then": "too long"}))


async def test_what_a_stage_prints_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with running() as worker:
        await collect(worker.stream("x", {"then": "print"}))
        await until(lambda: any(getattr(record, "line", "") == "a line from the stage" for record in caplog.records))


async def test_cancel_ends_the_stream_interrupts_the_step_and_frees_the_worker() -> None:
    async with running() as worker:
        stream = worker.stream("x", {"say": ["a", "b"], "then": "wait"})
        assert await first(stream) == "a"
        assert await first(stream) == "b"
        assert await first(stream) == "waiting"
        worker.cancel("x")
        worker.cancel("never seen")
        assert await collect(stream) == []
        assert await collect(worker.stream("x", {"say": [1]})) == [1]
        assert worker.restarts == 0


async def test_closing_the_generator_cancels_the_request() -> None:
    async with running() as worker:
        stream = worker.stream("x", {"then": "wait"})
        assert await first(stream) == "waiting"
        await stream.aclose()
        assert await collect(worker.stream("y", {"say": [1]})) == [1]


async def test_cancelling_the_consumer_cancels_the_request() -> None:
    async with running() as worker:
        has_begun = asyncio.Event()

        async def consume() -> None:
            async with aclosing(worker.stream("x", {"then": "wait"})) as stream:
                async for _ in stream:
                    has_begun.set()

        task = asyncio.ensure_future(consume())
        async with asyncio.timeout(PATIENCE_S):
            await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await collect(worker.stream("y", {"say": [1]})) == [1]


async def test_a_request_cancelled_in_the_queue_never_runs() -> None:
    async with running("Turns") as worker:
        holding = worker.stream("h", "hold")
        assert await first(holding) == "waiting"
        waiting_one = asyncio.ensure_future(collect(worker.stream("y", 5)))
        await asyncio.sleep(0)
        worker.cancel("y")
        assert await waiting_one == []
        await holding.aclose()
        assert await collect(worker.stream("x", 5)) == [1, 2, 3, 4, 5], "y took no step"


async def test_a_cancelled_request_that_does_not_leave_costs_the_process() -> None:
    async with running(stall_s=0.3, heartbeat_s=0.1) as worker:
        stream = worker.stream("x", {"then": "hang"})
        assert await first(stream) == "hanging"
        await stream.aclose()
        await until(lambda: worker.restarts >= 1 and worker.health().ready)


async def test_a_full_worker_refuses_and_a_cancelled_request_keeps_its_place_until_it_has_left() -> None:
    async with running(capacity=2) as worker:
        stuck = worker.stream("x", {"then": "wait"})
        assert await first(stuck) == "waiting"
        waiting = worker.stream("y", {"say": ["b"]})
        task = asyncio.ensure_future(collect(waiting))
        await asyncio.sleep(0)
        with pytest.raises(EngineBusy, match="2 open requests, at most 2"):
            await collect(worker.stream("z", {}))
        await stuck.aclose()
        with pytest.raises(EngineBusy):
            await collect(worker.stream("z", {}))
        assert await task == ["b"]
        assert await collect(worker.stream("z", {"say": ["c"]})) == ["c"]


async def test_an_open_request_id_cannot_be_used_twice() -> None:
    async with running() as worker:
        stream = worker.stream("x", {"say": ["a"], "then": "wait"})
        await first(stream)
        with pytest.raises(EngineError, match="open already"):
            await collect(worker.stream("x", {}))
        await stream.aclose()


async def test_steps_go_round_between_requests_and_urgent_ones_go_first() -> None:
    async with running("Turns") as worker:
        holding = worker.stream("h", "hold")
        assert await first(holding) == "waiting"
        streams = (worker.stream("low", 3, priority=20), worker.stream("a", 4), worker.stream("b", 4))
        asked = asyncio.gather(*map(collect, streams))
        await asyncio.sleep(0)  # all three wait now
        await holding.aclose()
        low, a, b = await asked
    assert a != [1, 2, 3, 4] != b, "one request was served to its end before the other"
    assert max(low) == 11
    assert all(abs(x - y) <= 3 for x, y in zip(a, b, strict=True)), "a and b did not take turns"


async def test_a_stage_with_two_threads_answers_two_at_once() -> None:
    async with running("Pair") as worker:
        both = await asyncio.gather(collect(worker.stream("a", None)), collect(worker.stream("b", None)))
    assert list(both) == [["waiting", "met"], ["waiting", "met"]]


async def test_close_ends_open_requests_and_leaves_no_process() -> None:
    async with running() as worker:
        pid = worker.pid
        assert pid is not None
        stream = worker.stream("x", {"say": ["a"], "then": "hold the interpreter"})
        assert await first(stream) == "a"
        waiting = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0)
        await worker.close()
        with pytest.raises(EngineNotReady):
            await waiting
        assert not is_alive(pid)
        assert worker.health().detail == "closed"
        await worker.close()


async def test_a_closed_worker_can_be_started_again() -> None:
    async with running() as worker:
        await worker.close()
        await worker.start()
        assert await collect(worker.stream("x", {"say": [1]})) == [1]


async def test_cancelling_the_start_leaves_no_process() -> None:
    worker = Worker(WorkerSpec(name="test", factory=f"{STAGES}:hang_loading"))
    task = asyncio.ensure_future(worker.start())
    await until(lambda: worker.pid is not None)
    pid = worker.pid
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pid is not None
    assert not is_alive(pid)


PARENT = """
import asyncio, sys
from engine.worker import Worker, WorkerSpec
async def main():
    worker = Worker(WorkerSpec(name="test", factory=sys.argv[1]))
    await worker.start()
    if sys.argv[2] != "nothing":
        stream = worker.stream("x", {"say": ["a"], "then": sys.argv[2]})
        await anext(stream)
    print(worker.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("doing", ["nothing", "hang", "hold the interpreter"])
def test_a_killed_parent_takes_its_child_along(doing: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, f"{STAGES}:Echo", doing], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
        deadline = time.monotonic() + PATIENCE_S
        while is_alive(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_alive(child)


def read_all(pieces: Iterable[bytes]) -> list[Frame]:
    reader = FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


@given(st.lists(st.binary(max_size=40), max_size=4), st.integers(1, 9))
def test_frames_survive_any_split(bodies: list[bytes], size: int) -> None:
    frames = [(Kind.MESSAGE, number, body) for number, body in enumerate(bodies)]
    data = b"".join(encode(*frame) for frame in frames)
    assert read_all(data[at : at + size] for at in range(0, len(data), size)) == frames


@pytest.mark.parametrize(
    "data",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "little"),
        b"\x01\x00\x00\x00\xc1",
        b"\x03\x00\x00\x00\x93\x63\x00",
        b"\x04\x00\x00\x00\x93\x63\x00\xc0",
    ],
)
def test_bytes_that_are_no_frames_are_refused(data: bytes) -> None:
    with pytest.raises(BrokenStream):
        read_all([data])
