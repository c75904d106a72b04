"""Conversations on a real Ray Serve while it grows from one replica to two, and while its head is away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.client import Conversation, connect
from gateway.events import StartSession
from tests.running import Running, gateway

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-ray" / "bin" / "python"
START_S = 120.0  # two busy cores; 10 s on quiet ones
N_OLD, N_NEW = 4, 4

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(not PYTHON.exists(), reason="Ray is not installed: scripts/setup-ray.sh"),
]


class Cluster:
    """A running `tests.ray.cluster`."""

    def __init__(self, port: int) -> None:
        self.port, self.n_replicas = port, 0
        environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'configs' / 'ray'}"}
        self._process = subprocess.Popen(
            [str(PYTHON), "-m", "tests.ray.cluster", str(port)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # by which what it leaves behind is found
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None, "stdout is a pipe"
        for line in self._process.stdout:
            if line.startswith("{"):
                self.n_replicas = json.loads(line)["replicas"]

    async def until(self, n_replicas: int) -> None:
        async with asyncio.timeout(START_S):
            while self.n_replicas != n_replicas:
                assert self._process.poll() is None, f"the cluster ended with {self._process.returncode}"
                await asyncio.sleep(0.2)

    def kill(self) -> None:
        """The head dies at once, and its daemons with it."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._close()

    def stop(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate("\n", timeout=60)
        self._close()

    def _close(self) -> None:
        for pid in session_members(self._process.pid):  # agents outlive their raylet
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._reader.join(5)


def session_members(session: int) -> list[int]:
    """The processes of a session, as the kernel counts them."""
    listing = subprocess.run(["ps", "-eo", "pid=,sid="], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid, sid in (line.split() for line in listing.splitlines()) if int(sid) == session]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    started = Cluster(free_port())
    try:
        asyncio.run(started.until(1))
        yield started
    finally:
        started.stop()


@pytest.fixture
def talking(cluster: Cluster) -> Iterator[Running]:
    settings = {
        "STRETTO_LLM__ENGINE": "openai",
        "STRETTO_LLM__ENDPOINTS": f'["http://127.0.0.1:{cluster.port}/v1"]',
        "STRETTO_TTS__ENGINES": '["fake"]',
        "STRETTO_ASR__ENGINE": "off",
    }
    with gateway(settings) as started:
        yield started


@asynccontextmanager
async def talker(running: Running) -> AsyncGenerator[Conversation, None]:
    async with connect(running.voice_url, start=StartSession(output="text"), timeout_s=60.0) as conversation:
        yield conversation


async def ask(conversation: Conversation) -> tuple[str, str]:
    """(status of the turn, replica that answered)."""
    reply = await conversation.text("Who are you?")
    done = await reply.finished()
    found = re.search(r"Replica (\w+) saw", reply.text)
    return done.status, found[1] if found else ""


async def talk_until(over: asyncio.Event, running: Running) -> list[tuple[str, str]]:
    """Ask without a pause until `over`, then once more."""
    turns = []
    async with talker(running) as conversation:
        while True:
            is_last = over.is_set()
            turns.append(await ask(conversation))
            if is_last:
                return turns


async def test_a_scale_out_disturbs_nobody_and_nobody_moves(cluster: Cluster, talking: Running) -> None:
    over = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        old = [tasks.create_task(talk_until(over, talking), name=f"old {n}") for n in range(N_OLD)]
        await cluster.until(2)
        new = [tasks.create_task(talk_until(over, talking), name=f"new {n}") for n in range(N_NEW)]
        await asyncio.sleep(3)  # turns of one second on the grown cluster
        over.set()
    talks = [task.result() for task in (*old, *new)]
    disturbed = [turns for turns in talks if {status for status, _ in turns} != {"completed"}]
    moved = [turns for turns in talks if len({replica for _, replica in turns}) != 1]
    homes = [{turns[0][1] for turns in (task.result() for task in group)} for group in (old, new)]
    print(f"\n{sum(map(len, talks))} turns of {len(talks)} conversations over a scale-out: disturbed {len(disturbed)}, moved {len(moved)}")
    assert not disturbed
    assert not moved
    assert len(homes[0]) == 1, "one replica, when they began"
    assert homes[1] - homes[0], "the new replica has conversations of its own"


async def test_a_head_that_dies_fails_turns_and_not_conversations(cluster: Cluster, talking: Running) -> None:
    async with talker(talking) as conversation:
        assert (await ask(conversation))[0] == "completed"
        reply = await conversation.text("And now?")
        cluster.kill()
        assert (await reply.finished()).status in ("failed", "completed")
        await until_refused(cluster.port)
        assert (await ask(conversation))[0] == "failed"
        again = Cluster(cluster.port)
        try:
            await again.until(1)
            async with asyncio.timeout(60):
                while (await ask(conversation))[0] != "completed":
                    await asyncio.sleep(0.5)
        finally:
            await asyncio.to_thread(again.stop)


async def until_refused(port: int) -> None:
    """Ray's daemons have noticed that their head is gone."""
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while True:
            try:
                await client.get(f"http://127.0.0.1:{port}/v1/models", timeout=2.0)
            except httpx.HTTPError:
                return
            await asyncio.sleep(0.2)
