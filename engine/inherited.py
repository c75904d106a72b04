"""What child processes get of our environment: all but the gateway's own settings, among which are its keys.

A child is told what it needs when it starts; its environment shows in places that the gateway's does not, such as crash reports of
model libraries.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

_PREFIX = "STRETTO_"
_NEEDED = frozenset({"STRETTO_CACHE_DIR", "STRETTO_ENGINE_FOLLOWS_PARENT"})


def inherited() -> dict[str, str]:
    """The environment of a child."""
    return {name: value for name, value in os.environ.items() if not _is_ours(name)}


@contextlib.contextmanager
def only_inherited() -> Iterator[None]:
    """Our own environment is a child's, for libraries that start processes by themselves. One at a time."""
    ours = {name: os.environ.pop(name) for name in list(os.environ) if _is_ours(name)}
    try:
        yield
    finally:
        os.environ.update(ours)


def _is_ours(name: str) -> bool:
    return name.startswith(_PREFIX) and name not in _NEEDED
