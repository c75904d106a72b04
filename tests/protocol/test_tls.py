"""`--tls` without a certificate: a self-signed pair that a client may trust, and clear words where it cannot be kept or is not trusted."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.client import ConnectFailed, connect
from tests.running import Running, gateway


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def running(cache: Path) -> Iterator[Running]:
    with gateway({"STRETTO_CACHE_DIR": str(cache), "STRETTO_FAKE__REPLY": "Yes."}, "--tls") as started:
        yield started


async def test_a_client_that_trusts_the_certificate_talks(running: Running, cache: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(cache / "tls" / "certificate.pem"))
    async with connect(f"wss://127.0.0.1:{running.port}/v1/voice", tls=trusting) as conversation:
        reply = await conversation.text("Hello?")
        await reply.finished()
        assert reply.text == "Yes."


async def test_a_certificate_that_is_not_trusted_is_called_so(running: Running) -> None:
    with pytest.raises(ConnectFailed, match=r"not trusted here .*--insecure"):
        async with connect(f"wss://127.0.0.1:{running.port}/v1/voice"):
            pass


def test_the_private_key_is_for_its_owner_alone(running: Running, cache: Path) -> None:
    assert (cache / "tls" / "key.pem").stat().st_mode & 0o077 == 0


def test_a_cache_that_takes_no_certificate_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "gateway", "serve", "--engines", "fake", "--port", "0", "--tls"]
    environment = {"PATH": "/usr/bin:/bin", "STRETTO_CACHE_DIR": str(tmp_path / "file")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "no certificate can be kept" in done.stderr
    assert "STRETTO_CACHE_DIR" in done.stderr
