"""vLLM's server as a process of its own: its command line, its state file, and a life without the gateway. A small double serves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from engine.api import EngineError, EngineSetupError, Generation, Message
from engine.llm.serving import ServedVllm, ServerProcess, stop_all
from engine.llm.serving.command import command_of, digest_of, flag, request_fields
from engine.llm.serving.model import FOLDER
from engine.llm.serving.process import stop_others
from engine.vllm_args import Plan

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0  # a second on a quiet machine
TRIES = 5  # at half a second, which a busy machine may need by itself; a fault fails every time
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


def plan_of(**arguments: object) -> Plan:
    return Plan(
        model="sea-7b",
        arguments={"model": "sea-7b", "max_num_seqs": 8, **arguments},
        template={"enable_thinking": False},
        sampling={"top_k": 20},
        canary_s=PATIENCE_S,
        hung_s=PATIENCE_S,
    )


@pytest.mark.parametrize(
    ("name", "value", "written"),
    [
        ("max_num_seqs", 8, ["--max-num-seqs", "8"]),
        ("enable_prefix_caching", True, ["--enable-prefix-caching"]),
        ("enable_prefix_caching", False, ["--no-enable-prefix-caching"]),
        ("enforce_eager", False, []),
        ("quantization", None, []),
        ("compilation_config", {"b": 1, "a": {"c": False}}, ["--compilation-config", '{"a": {"c": false}, "b": 1}']),
        ("logits_processors", ["a:B", "c:D"], ["--logits-processors", "a:B", "c:D"]),
    ],
)
def test_arguments_become_flags(name: str, value: object, written: list[str]) -> None:
    assert flag(name, value) == written


def test_the_command_serves_on_the_socket_alone() -> None:
    command = command_of(plan_of(), "python", "/run/x.sock")
    assert command[:5] == ["python", "-m", "vllm.entrypoints.openai.api_server", "--uds", "/run/x.sock"]
    assert "--port" not in command
    assert request_fields(plan_of()) == {"top_k": 20, "chat_template_kwargs": {"enable_thinking": False}}


def test_the_server_takes_tools_where_its_parser_was_named(tmp_path: Path) -> None:
    assert not ServedVllm(plan_of(), tmp_path).facts.takes_tools
    named = msgspec.structs.replace(plan_of(), tool_call_parser="hermes")
    assert ServedVllm(named, tmp_path).facts.takes_tools


def test_the_template_in_the_models_folder_tells_the_servers_parser(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "... <tool_call> ..."}')
    assert ServedVllm(msgspec.structs.replace(plan_of(), model=str(tmp_path)), tmp_path).facts.takes_tools
    (tmp_path / "chat_template.jinja").write_text("no calls here")
    assert not ServedVllm(msgspec.structs.replace(plan_of(), model=str(tmp_path)), tmp_path).facts.takes_tools, "the file wins"


def test_other_settings_are_another_engine() -> None:
    assert digest_of(plan_of(), "p", {}) == digest_of(plan_of(), "p", {})
    assert digest_of(plan_of(), "p", {}) != digest_of(plan_of(max_num_seqs=9), "p", {})
    assert digest_of(plan_of(), "p", {}) != digest_of(plan_of(), "p", {"A": "1"})


def test_a_server_is_found_again_and_never_started_twice(tmp_path: Path) -> None:
    first, second = ServerProcess(tmp_path, "aa"), ServerProcess(tmp_path, "aa")
    try:
        assert first.ensure(SLEEP, os.environ)
        assert not second.ensure(SLEEP, os.environ)
        assert second.pid == first.pid is not None
    finally:
        assert second.stop(2.0)
    assert not second.stop(2.0)


def test_a_recycled_process_id_is_not_the_server(tmp_path: Path) -> None:
    process = ServerProcess(tmp_path, "aa")
    process.ensure(SLEEP, os.environ)
    state_file = tmp_path / "aa.json"
    whole = state_file.read_text()
    try:
        started = whole.partition('"started":')[2].partition(",")[0]
        state_file.write_text(whole.replace(f'"started":{started}', '"started":1'))
        assert process.pid is None
        assert not ServerProcess(tmp_path, "aa").stop(0.1)
    finally:
        state_file.write_text(whole)
        process.stop(2.0)


def test_servers_of_other_settings_are_ended(tmp_path: Path) -> None:
    old, new = ServerProcess(tmp_path, "aa"), ServerProcess(tmp_path, "bb")
    try:
        old.ensure(SLEEP, os.environ)
        new.ensure(SLEEP, os.environ)
        assert stop_others(tmp_path, "bb", 2.0) == 1
        assert old.pid is None
        assert new.pid is not None
        assert stop_all(tmp_path, 2.0) == 1
    finally:
        stop_all(tmp_path, 2.0)


def test_a_torn_state_file_is_no_server(tmp_path: Path) -> None:
    (tmp_path / "aa.json").write_text('{"pid": 1')
    assert ServerProcess(tmp_path, "aa").pid is None


@asynccontextmanager
async def served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool = False, hung_s: float = PATIENCE_S
) -> AsyncGenerator[ServedVllm, None]:
    """The adapter over the double that stands in for vLLM's module; without `keep` the server ends with the block."""
    monkeypatch.setattr("engine.llm.serving.command.MODULE", "tests.doubles.vllm_server")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plan = msgspec.structs.replace(plan_of(), canary_s=min(hung_s, 0.3), hung_s=hung_s)
    model = ServedVllm(plan, tmp_path, first_s=PATIENCE_S, next_s=PATIENCE_S, start_s=PATIENCE_S)
    await model.start()
    try:
        yield model
    finally:
        await model.close()
        if not keep:
            await asyncio.to_thread(stop_all, tmp_path / FOLDER, 5.0)


async def said(model: ServedVllm, request_id: str = "s-1") -> str:
    prompt = await model.render((Message(role="user", text="Hello."),), (), None)
    async with aclosing(model.generate(Generation(request_id=request_id, prompt=prompt))) as deltas:
        return "".join([delta.text async for delta in deltas])


async def until(is_true: Callable[[], bool], within_s: float = PATIENCE_S) -> bool:
    for _ in range(round(within_s / 0.05)):
        if is_true():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_gateway_restart_finds_its_server_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path, monkeypatch, keep=True) as model:
        pid = model.process.pid
        assert await said(model) == "The sea is wide."
    assert not model.health().ready
    async with served(tmp_path, monkeypatch) as again:
        assert again.process.pid == pid
        assert await said(again) == "The sea is wide."
    assert again.process.pid is None


async def test_a_server_that_dies_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path, monkeypatch) as model:
        pid = model.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert await until(lambda: model.n_restarts >= 1 and model.health().ready)
        assert model.process.pid not in (None, pid)
        assert await said(model) == "The sea is wide."


async def test_a_server_that_hangs_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(tmp_path, monkeypatch, hung_s=0.5) as model:
        pid = model.process.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        assert await until(lambda: model.n_restarts >= 1 and model.health().ready)
        assert model.process.pid != pid
        for number in range(TRIES):  # a busy machine may make the new one late, too
            with suppress(EngineError):
                assert await said(model, f"s-{number}") == "The sea is wide."
                return
            assert await until(lambda: model.health().ready)
        pytest.fail("no server spoke")


async def test_a_busy_server_is_told_from_a_hung_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its canaries starve while a conversation is answered: that is load. When nobody gets a word, it hangs."""
    monkeypatch.setenv("VLLM_DOUBLE_DEAF", "1")
    for _ in range(TRIES):
        async with served(tmp_path, monkeypatch, hung_s=0.5) as model:
            with suppress(EngineError):
                assert (await said(model)).startswith("sea sea ")
                if model.n_restarts == 0:
                    assert await until(lambda: model.n_restarts >= 1)
                    return
    pytest.fail("it was taken for a hung one each time")


async def test_a_server_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.llm.serving.command.MODULE", "tests.doubles.vllm_server")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("VLLM_DOUBLE_FAULT", "CUDA out of memory")
    model = ServedVllm(plan_of(), tmp_path, start_s=PATIENCE_S)
    with pytest.raises(
        EngineSetupError, match=r"did not start with 'sea-7b': RuntimeError: CUDA out of memory \(too little free GPU memory"
    ):
        await model.start()
    await model.close()
