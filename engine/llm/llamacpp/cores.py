"""How many physical cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # cgroup v2: "max 100000" or "200000 100000"


def physical_cores() -> int:
    """Cores, not hyper-threads, within the process's affinity and its container's quota; at least 1."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core_of(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota()))


def _core_of(cpu: int) -> str:
    try:
        return Path(_SIBLINGS.format(cpu)).read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int:
    try:
        quota, period = _QUOTA.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):
        return os.cpu_count() or 1
