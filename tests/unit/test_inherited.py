"""What child processes see of our environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.inherited import inherited, only_inherited
from engine.worker import Worker, WorkerSpec

OURS = {"STRETTO_KEYS": "secret", "STRETTO_SERVER__KEYS": '["secret"]', "STRETTO_KEYS__KIOSK__KEY": "secret"}


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**OURS, "STRETTO_CACHE_DIR": "/cache", "OMP_NUM_THREADS": "1"}.items():
        monkeypatch.setenv(name, value)


def test_settings_stay_here_and_the_rest_goes_along() -> None:
    told = inherited()
    assert "secret" not in "".join(told.values())
    assert (told["STRETTO_CACHE_DIR"], told["OMP_NUM_THREADS"], told["PATH"]) == ("/cache", "1", os.environ["PATH"])


def test_a_library_that_starts_processes_sees_no_keys_and_we_have_them_back() -> None:
    with only_inherited():
        assert "STRETTO_KEYS" not in os.environ
        assert os.environ["STRETTO_CACHE_DIR"] == "/cache"
    assert {name: os.environ[name] for name in OURS} == OURS


def environment_of(pid: int | None) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


async def test_a_worker_has_no_keys() -> None:
    worker = Worker(WorkerSpec(name="echo", factory="tests.unit.worker_stages:Echo"))
    await worker.start()
    try:
        assert b"secret" not in environment_of(worker.pid)
    finally:
        await worker.close()
