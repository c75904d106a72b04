"""A real llama.cpp with SmolLM2-135M in its worker. Wording is never asserted: the model is tiny."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from engine.api import ContextTooLong, Delta, EngineBusy, EngineError, EngineNotReady, EngineSetupError, Generation, Message, Role, Sampling
from engine.llm.llamacpp import LlamaCpp
from engine.weights import SMOLLM2
from tests.e2e.local_engines import PATIENCE_S, take_first, until, weights

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONTEXT_TOKENS, SLOTS = 1024, 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncGenerator[LlamaCpp, None]:
    made = LlamaCpp(weights(SMOLLM2), CONTEXT_TOKENS, SLOTS)
    await made.start()
    yield made
    await made.close()


def message(role: Role, text: str) -> Message:
    return Message(role=role, text=text)


def user(text: str) -> Message:
    return message("user", text)


PERSONA = message("system", "You are a friendly voice assistant. Answer in one short sentence.")


async def ask(model: LlamaCpp, request_id: str, *messages: Message, max_tokens: int = 16) -> list[Delta]:
    async with asyncio.timeout(PATIENCE_S), aclosing(stream(model, request_id, *messages, max_tokens=max_tokens)) as deltas:
        return [delta async for delta in deltas]


async def stream(model: LlamaCpp, request_id: str, *messages: Message, max_tokens: int = 16) -> AsyncGenerator[Delta, None]:
    prompt = await model.render(messages, (), None)
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0)
    async with aclosing(model.generate(Generation(request_id=request_id, prompt=prompt, sampling=sampling))) as deltas:
        async for delta in deltas:
            yield delta


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def cached(deltas: list[Delta]) -> int:
    assert deltas[-1].usage is not None
    return deltas[-1].usage.cached_tokens


def prompt_tokens(deltas: list[Delta]) -> int:
    assert deltas[-1].usage is not None
    return deltas[-1].usage.prompt_tokens


async def test_a_reply_streams_token_by_token_and_ends_with_its_usage(model: LlamaCpp) -> None:
    deltas = await ask(model, "r", PERSONA, user("Tell me something about the sea."), max_tokens=12)
    assert len(deltas) > 6
    assert text_of(deltas).strip()
    assert [delta.finish for delta in deltas[:-1]] == [None] * (len(deltas) - 1)
    assert deltas[-1].finish == "length"
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.output_tokens == 12
    assert sum(delta.n_tokens for delta in deltas) == 12
    assert 20 < usage.prompt_tokens < 60


async def test_a_model_that_has_said_all_stops(model: LlamaCpp) -> None:
    deltas = await ask(model, "r", PERSONA, user("Say hello."), max_tokens=400)
    assert deltas[-1].finish == "stop"


async def test_two_conversations_keep_their_prefixes(model: LlamaCpp) -> None:
    history = {
        name: [PERSONA, user(f"I am {name}. Tell me about {thing}.")] for name, thing in (("Ann", "whales"), ("Bob", "steam engines"))
    }
    read: dict[str, int] = {}
    for _ in range(3):
        for name, messages in history.items():
            deltas = await ask(model, name, *messages)
            assert cached(deltas) >= read.get(name, 0)
            read[name] = prompt_tokens(deltas) - 1
            messages += [message("assistant", text_of(deltas)), user("Go on.")]


async def test_replies_run_side_by_side_and_more_wait_for_a_slot(model: LlamaCpp) -> None:
    replies = await asyncio.gather(*(ask(model, f"r{n}", PERSONA, user(f"Count from {n}.")) for n in range(SLOTS + 2)))
    assert all(deltas[-1].finish in ("stop", "length") and text_of(deltas) for deltas in replies)


async def test_cancel_ends_a_running_reply_and_frees_its_slot(model: LlamaCpp) -> None:
    deltas = stream(model, "r", PERSONA, user("Tell me a long story."), max_tokens=800)
    first = await take_first(deltas)
    assert first.finish is None
    model.cancel("r")
    model.cancel("unknown")
    async with asyncio.timeout(PATIENCE_S):
        rest = [delta async for delta in deltas]
    assert [delta.finish for delta in rest] == ["cancelled"]
    assert text_of(await ask(model, "r", PERSONA, user("Hello.")))


async def test_cancel_in_the_prefill_stops_the_prefill(model: LlamaCpp) -> None:
    """Had it gone on, the same prompt would be found in the cache whole."""
    pid = model.pid
    for attempt in range(8):  # on a busy machine a cancel may come too late; without any effect it does so each time
        long = user(" ".join(f"{attempt} number {n}," for n in range(80)))
        task = asyncio.ensure_future(ask(model, "r", long))
        await asyncio.sleep(0.05)
        model.cancel("r")
        assert (await task)[-1].finish == "cancelled"
        again = await ask(model, "s", long, max_tokens=1)
        assert prompt_tokens(again) > 400
        if cached(again) < prompt_tokens(again) - 128:
            break
    else:
        pytest.fail(f"{cached(again)} of {prompt_tokens(again)} tokens were read in spite of the cancel")
    assert model.pid == pid


async def test_a_prompt_that_does_not_fit_is_refused(model: LlamaCpp) -> None:
    with pytest.raises(ContextTooLong, match=rf"has \d+ tokens, the context {CONTEXT_TOKENS}"):
        await ask(model, "r", user("sea " * 1200))
    assert text_of(await ask(model, "r", PERSONA, user("Hello.")))


@pytest.mark.parametrize("special", ["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
async def test_special_tokens_in_a_text_are_letters(model: LlamaCpp, special: str, role: Role) -> None:
    """As a control token each would be one token; as letters and signs it is many."""
    ends = () if role == "user" else (user("Go on."),)
    without = prompt_tokens(await ask(model, "r", message(role, "A b"), *ends, max_tokens=1))
    with_special = prompt_tokens(await ask(model, "r", message(role, f"A {special} b"), *ends, max_tokens=1))
    assert with_special - without >= 5
    assert without < 70, "the template's own tokens were taken apart"


async def test_two_messages_of_one_role_and_a_strange_order_are_taken(model: LlamaCpp) -> None:
    assert text_of(await ask(model, "r", PERSONA, user("Hello."), user("Are you there?")))
    assert text_of(await ask(model, "r", PERSONA, message("assistant", "Hello!")))


async def test_tools_are_refused_and_not_ignored(model: LlamaCpp) -> None:
    assert not model.facts.takes_tools
    with pytest.raises(EngineError, match="takes none"):
        await model.render([user("x")], [{"type": "function"}], None)


async def test_more_replies_than_may_wait_are_refused(model: LlamaCpp) -> None:
    results = await asyncio.gather(*(ask(model, f"r{n}", user("Hi"), max_tokens=1) for n in range(SLOTS * 17 + 3)), return_exceptions=True)
    assert sum(isinstance(result, EngineBusy) for result in results) == 3
    assert sum(isinstance(result, list) for result in results) == SLOTS * 17


async def test_nothing_listens_on_the_network_and_the_socket_is_ours_alone(model: LlamaCpp) -> None:
    assert model.pid is not None
    assert listening_ports(model.pid) == []
    assert socket_folder_mode(model.pid) & 0o077 == 0


def listening_ports(pid: int) -> list[str]:
    """Addresses on which a process listens, as /proc writes them."""
    sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()}
    tables = [Path(f"/proc/{pid}/net/{table}") for table in ("tcp", "tcp6")]
    rows = [line.split() for table in tables if table.exists() for line in table.read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


def socket_folder_mode(pid: int) -> int:
    lines = Path(f"/proc/{pid}/net/unix").read_text().splitlines()
    (path,) = {line.split()[-1] for line in lines if line.endswith(f"/{pid}.sock")}
    return Path(path).parent.stat().st_mode


async def test_a_worker_killed_in_the_middle_of_a_reply_ends_it_and_comes_back(model: LlamaCpp) -> None:
    pid = model.pid
    assert pid is not None
    deltas = stream(model, "r", PERSONA, user("Tell me a long story."), max_tokens=800)
    await take_first(deltas)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(EngineNotReady):
        async with asyncio.timeout(PATIENCE_S):
            [delta async for delta in deltas]
    with pytest.raises(EngineNotReady):
        await model.render([user("Hello.")], (), None)
    await until(lambda: model.health().ready)
    assert model.pid != pid
    assert text_of(await ask(model, "r", PERSONA, user("Hello.")))


async def test_files_that_are_no_whole_model_stop_the_start(tmp_path: Path) -> None:
    with pytest.raises(EngineSetupError, match=r"nothing\.gguf: No such file"):
        LlamaCpp(tmp_path / "nothing.gguf", CONTEXT_TOKENS, SLOTS)
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(EngineSetupError, match="not a GGUF file"):
        LlamaCpp(tmp_path / "text.gguf", CONTEXT_TOKENS, SLOTS)
    half = tmp_path / "half.gguf"
    with weights(SMOLLM2).open("rb") as whole:
        half.write_bytes(whole.read(5_000_000))
    with pytest.raises(EngineSetupError, match=r"half\.gguf \(5000000 bytes\): expected a whole GGUF file"):
        await LlamaCpp(half, CONTEXT_TOKENS, SLOTS).start()
