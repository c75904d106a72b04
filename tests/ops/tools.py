"""The programs these tests call. A missing one skips its tests loudly; with CI=true it fails them."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest


def program(name: str, package: str) -> str:
    """Where `name` is. `package`: what brings it, for the message."""
    beside = str(Path(sys.executable).parent)  # programs that came as Python packages
    found = shutil.which(name) or shutil.which(name, path=beside)
    if found is None:
        missing(f"{name} is missing ({package})")
    return found


def module(name: str, package: str) -> ModuleType:
    """An optional Python package; typed loosely, because the type checker's machine need not have it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        missing(f"the Python package {name} is missing ({package})")


def missing(what: str) -> NoReturn:
    """Skip the test loudly; with CI=true fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(what, pytrace=False)
    pytest.skip(f"!! SKIPPED: {what}")


def promtool() -> str:
    """Prometheus' own checker."""
    return program("promtool", "Debian: apt-get install prometheus")
