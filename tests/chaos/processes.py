"""The processes behind a gateway: found, killed, kept down, stopped for a while; and whether any of them is left."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

DOWN_S, LOOK_S = 5.0, 0.1  # a turn takes three seconds
Do = Callable[[], Awaitable[None]]


def children(pid: int, wanted: str = "") -> list[int]:
    """Its child processes, and theirs, whose command line holds `wanted`."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            with suppress(FileNotFoundError, ProcessLookupError):  # gone since
                command = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
                if re.search(wanted, command):
                    found.append(child)
                found += children(child, wanted)
    return found


def alive(pids: list[int]) -> list[int]:
    """Those that still run. A zombie does not; ids are not used again within the seconds between two looks."""
    return [pid for pid in pids if (stat := _stat(pid)) and stat.rpartition(")")[2].split()[0] not in ("Z", "X")]


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cpu_s(pids: list[int]) -> float:
    """Seconds of a core that these have used so far."""
    fields = [stat.rpartition(")")[2].split() for pid in pids if (stat := _stat(pid))]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def n_sockets(port: int) -> int:
    """Connections that are open to this port of this machine, as their clients' side sees it."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(int(remote.rpartition(":")[2], 16) == port and state == "01" for _, _, remote, state, *_ in map(str.split, lines))


def watch_end(pids: list[int], port: int, within_s: float) -> tuple[float, float, int]:
    """Seconds from now to the last open socket's end and to the last process's; how many processes are left after `within_s`. Blocks."""
    began_s = time.monotonic()
    sockets_s = processes_s = 0.0
    while (now_s := time.monotonic() - began_s) < within_s:
        if n_sockets(port):
            sockets_s = now_s
        if not alive(pids):
            processes_s = now_s
            break
        time.sleep(0.01)
    return sockets_s, processes_s or within_s, len(alive(pids))


def kill(pid: int, wanted: str) -> Do:
    """SIGKILL to the processes under `pid` with this in their command line."""

    async def do() -> None:
        found = children(pid, wanted)
        assert found, f"a process of {wanted} runs"
        for child in found:
            os.kill(child, signal.SIGKILL)

    return do


def keep_down(pid: int, wanted: str) -> Do:
    """SIGKILL as often as it comes back within `DOWN_S`: one that dies between two texts and is back for the next is missed by nobody."""

    async def do() -> None:
        for _ in range(round(DOWN_S / LOOK_S)):
            for child in children(pid, wanted):
                with suppress(ProcessLookupError):  # gone between two looks
                    os.kill(child, signal.SIGKILL)
            await asyncio.sleep(LOOK_S)

    return do


class Stopped:
    """SIGSTOP to the processes under `pid` with this in their command line, until `resume`, or until somebody kills them."""

    def __init__(self, pid: int, wanted: str) -> None:
        self._pid, self._wanted = pid, wanted
        self._pids: list[int] = []

    async def stop(self) -> None:
        self._pids = children(self._pid, self._wanted)
        assert self._pids, f"a process of {self._wanted} runs"
        for child in self._pids:
            os.kill(child, signal.SIGSTOP)

    async def resume(self) -> None:
        for child in alive(self._pids):
            os.kill(child, signal.SIGCONT)

    def was_spared(self) -> str:
        """What is wrong where it was taken for hung."""
        return "" if alive(self._pids) == self._pids else f"{self._wanted} was ended although it goes on"

    def was_ended(self) -> str:
        """What is wrong where nobody ended what hangs."""
        return f"{self._wanted} hangs, and nobody ended it" if alive(self._pids) else ""
