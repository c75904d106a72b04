"""Numbers of a bench: what a turn took, percentiles, and what a process uses (Linux: /proc)."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Summary(Struct, frozen=True, kw_only=True):
    """Percentiles of a series, nearest rank."""

    n: int
    p50: float
    p95: float
    p99: float
    max: float


def summarize(values: Sequence[float]) -> Summary | None:
    """None for an empty series: no figure is better than a zero that nobody measured."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p95, p99 = (ordered[max(0, math.ceil(share * len(ordered)) - 1)] for share in (0.5, 0.95, 0.99))
    return Summary(n=len(ordered), p50=p50, p95=p95, p99=p99, max=ordered[-1])


class Tally:
    """Everything the talkers measured, in milliseconds; one for all of them."""

    def __init__(self) -> None:
        self.ttft_ms = array("d")  # the gateway's own figure: its clock, from commit to first token
        self.first_segment_ms = array("d")  # at the client, from sending the text
        self.first_audio_ms = array("d")
        self.own_segment_ms = array("d")  # engine delta -> segment frame at the client
        self.own_first_audio_ms = array("d")  # voice chunk -> a turn's first audio frame at the client
        self.own_audio_ms = array("d")  # the same for every frame that pacing did not hold back on purpose
        self.late_audio_ms = array("d")  # how long a speaker that started with the first frame ran dry
        self.tokens_per_s = array("d")  # of a reply, from its first text to its last
        self.n_prompt_tokens = 0
        self.n_cached_tokens = 0
        self.n_output_tokens = 0
        self.n_turns = 0
        self.n_failed = 0
        self.n_frames = 0
        self.n_audio_frames = 0
        self.wire_bytes = 0
        self.json_sample_bytes = 0
        self.wire_sample_bytes = 0
        self.faults: dict[str, int] = {}

    def add_fault(self, what: str) -> None:
        """Count a fault by its words."""
        self.n_failed += 1
        self.faults[what] = self.faults.get(what, 0) + 1


class Usage(Struct, frozen=True, kw_only=True):
    """What a process and its children have used so far."""

    cpu_s: float
    children_cpu_s: float
    rss_bytes: int


def usage(pid: int) -> Usage | None:
    """None where there is no /proc or no such process."""
    try:
        own_s, rss_bytes = _cpu_s(pid), _rss_bytes(pid)
    except (OSError, ValueError):
        return None
    return Usage(cpu_s=own_s, children_cpu_s=sum(map(_cpu_s_or_0, _descendants(pid))), rss_bytes=rss_bytes)


def own_cpu_s() -> float:
    """CPU time of this process: a load client near one core measures itself."""
    times = os.times()
    return times.user + times.system


def _cpu_s(pid: int) -> float:
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _cpu_s_or_0(pid: int) -> float:
    try:
        return _cpu_s(pid)
    except (OSError, ValueError):  # ended meanwhile
        return 0.0


def _rss_bytes(pid: int) -> int:
    return int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    tasks = _PROC / str(pid) / "task"
    for task in tasks.iterdir() if tasks.exists() else ():
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # a thread that ended, or a kernel without this file
            continue
    return found + [below for child in found for below in _descendants(child)]
