"""What the faults' verdicts look at: processes that are left, sockets that are open, what hangs and what goes on."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.chaos.processes import Stopped, alive, children, cpu_s, n_sockets, watch_end

NOBODY = 1  # no connection goes to this port
LASTS = "61.25"  # of no other test's process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", LASTS]) as process:
        while not children(os.getpid(), f"sleep {LASTS}"):  # its command line comes a moment after it
            time.sleep(0.01)
        yield process
        process.kill()


def test_a_process_that_is_left_is_found(sleeper: subprocess.Popen[bytes]) -> None:
    assert children(os.getpid(), f"sleep {LASTS}") == [sleeper.pid]
    assert watch_end([sleeper.pid], NOBODY, within_s=0.05)[2] == 1
    sleeper.kill()
    assert watch_end([sleeper.pid], NOBODY, within_s=60)[2] == 0  # a zombie is nobody


def test_an_open_socket_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert n_sockets(port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert n_sockets(port) == 1


@pytest.mark.may_block
async def test_what_hangs_and_what_goes_on_are_told_apart(sleeper: subprocess.Popen[bytes]) -> None:
    stopped = Stopped(os.getpid(), f"sleep {LASTS}")
    await stopped.stop()
    assert "nobody ended it" in stopped.was_ended()
    await stopped.resume()
    assert stopped.was_spared() == ""
    sleeper.kill()
    sleeper.wait()
    assert stopped.was_ended() == ""
    assert "although it goes on" in stopped.was_spared()


def test_the_time_of_a_core_is_counted() -> None:
    before_s = cpu_s([os.getpid()])
    while cpu_s([os.getpid()]) == before_s:
        pass
    assert alive([os.getpid()])
