"""Chat servers against a local double: every failure typed and in time, one clean retry, affinity, failover, aborts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from engine.api import ContextTooLong, Delta, EngineBusy, EngineError, EngineNotReady, EngineSetupError, EngineStalled, Generation, Message
from engine.llm.openai import ChatServers, OpenAiModel
from engine.llm.openai.endpoints import order, parse
from engine.llm.openai.reading import Unreadable
from tests.doubles.openai_chat import DONE, GOOD, Answer, ChatServer, piece, reply

HELLO = (Message(role="user", text="What is down there in the sea?"),)
PATIENCE_S = 60.0  # nothing here takes a second; a limit that a test runs into is its own
TEXT = "The sea is wide."


@asynccontextmanager
async def served(
    n: int = 1, socket: Path | None = None, model: str = "sea-7b", **settings: object
) -> AsyncGenerator[tuple[OpenAiModel, list[ChatServer]], None]:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(ChatServer().running(socket)) for _ in range(n)]
        options: dict[str, object] = {
            "connect_s": PATIENCE_S,
            "first_s": PATIENCE_S,
            "next_s": PATIENCE_S,
            "start_s": PATIENCE_S,
            **settings,
        }
        endpoints = tuple(parse(server.address) for server in servers)
        chat = OpenAiModel(ChatServers(endpoints=endpoints, model=model, **options))  # type: ignore[arg-type]  # keywords of the test
        await chat.start()
        try:
            yield chat, servers
        finally:
            await chat.close()


async def ask(chat: OpenAiModel, request_id: str = "s-1", into: list[Delta] | None = None) -> list[Delta]:
    deltas: list[Delta] = [] if into is None else into
    prompt = await chat.render(HELLO, (), None)
    async with aclosing(chat.generate(Generation(request_id=request_id, prompt=prompt))) as stream:
        async for delta in stream:
            deltas.append(delta)
    return deltas


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not fact():
            await asyncio.sleep(0.005)


async def until_idle(server: ChatServer) -> bool:
    for _ in range(round(PATIENCE_S / 0.01)):
        if not server.n_running:
            return True
        await asyncio.sleep(0.01)
    return False


async def test_a_reply_streams_with_its_real_counts() -> None:
    async with served() as (chat, [server]):
        deltas = await ask(chat)
    assert text_of(deltas) == TEXT
    assert deltas[-1].finish == "stop"
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.cached_tokens == 16
    assert server.requests[0]["model"] == "sea-7b"
    assert server.headers[0]["x-request-id"] == "s-1"
    assert server.headers[0]["x-session-id"] == "s"
    assert chat.n_open == 0


async def test_the_first_piece_does_not_wait_for_the_second() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=reply(), stall_after=2))
        prompt = await chat.render(HELLO, (), None)
        async with asyncio.timeout(PATIENCE_S / 2), aclosing(chat.generate(Generation(request_id="s-1", prompt=prompt))) as stream:
            assert (await anext(stream)).text == "The sea "
        assert await until_idle(server)


async def test_a_unix_socket_serves_as_well(tmp_path: Path) -> None:
    async with served(socket=tmp_path / "chat.sock") as (chat, _):
        assert text_of(await ask(chat)) == TEXT
        assert "unix:" in chat.name


@pytest.mark.parametrize("kind", ["tcp", "unix"])
async def test_connections_are_reused(tmp_path: Path, kind: str) -> None:
    async with served(socket=tmp_path / "chat.sock" if kind == "unix" else None) as (chat, [server]):
        for turn in range(5):
            await ask(chat, f"s-{turn}")
    assert len(server.peers) == 1


async def test_a_server_on_a_unix_socket_may_close_a_kept_connection(tmp_path: Path) -> None:
    path = tmp_path / "chat.sock"
    async with ChatServer().running(path) as server:
        chat = OpenAiModel(ChatServers(endpoints=(parse(server.address),), model="m", start_s=PATIENCE_S))
        await chat.start()
        assert text_of(await ask(chat, "s-1")) == TEXT
    path.unlink(missing_ok=True)
    async with ChatServer().running(path):
        assert text_of(await ask(chat, "s-2")) == TEXT
        await chat.close()


def test_cancels_over_a_unix_socket_leave_nothing_in_the_loops_log(tmp_path: Path) -> None:
    uvloop = pytest.importorskip("uvloop", reason="not on Windows")
    complaints: list[str] = []

    async def storm() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        async with served(socket=tmp_path / "chat.sock", first_s=PATIENCE_S, next_s=PATIENCE_S) as (chat, [server]):
            server.default = Answer(pieces=reply(["word "] * 20), piece_s=0.001)
            chance = random.Random(7)

            async def one(number: int) -> None:
                task = asyncio.create_task(ask(chat, f"c-{number}"))
                await asyncio.sleep(chance.uniform(0, 0.05))
                chat.cancel(f"c-{number}")
                await task

            for first in range(0, 200, 40):
                await asyncio.gather(*(one(number) for number in range(first, first + 40)))
            assert await until_idle(server)

    uvloop.run(storm())
    assert complaints == []


async def test_an_empty_model_is_the_first_that_is_served() -> None:
    async with served(model="") as (chat, [server]):
        await ask(chat)
    assert server.requests[0]["model"] == "sea-7b"


async def test_the_key_is_sent_as_bearer() -> None:
    async with served(api_key="secret") as (chat, [server]):
        await ask(chat)
    assert server.headers[0]["authorization"] == "Bearer secret"


async def test_a_refused_key_stops_the_start_and_names_the_variable() -> None:
    async with ChatServer().running() as server:
        server.models_status = 401
        settings = ChatServers(endpoints=(parse(server.address),), model="m", api_key="x", key_variable="SEA_KEY", start_s=0.5)
        with pytest.raises(EngineSetupError, match=r"refuses the key in the environment variable SEA_KEY \(HTTP 401\)"):
            await OpenAiModel(settings).start()


async def test_nobody_there_stops_the_start_with_the_cause(tmp_path: Path) -> None:
    missing = tmp_path / "none.sock"
    settings = ChatServers(endpoints=(parse(f"unix:{missing}"),), model="m", start_s=0.2)
    with pytest.raises(EngineSetupError, match=r"no chat server answers after 0\.2 s: 0 of 1 .*No such file"):
        await OpenAiModel(settings).start()


async def test_leaving_the_stream_closes_the_answer() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=reply(["word "] * 200), piece_s=0.02))
        prompt = await chat.render(HELLO, (), None)
        async with aclosing(chat.generate(Generation(request_id="s-1", prompt=prompt))) as stream:
            await anext(stream)
        assert await until_idle(server)
        assert len(server.closed_s) == 1
        assert text_of(await ask(chat, "s-2")) == TEXT


@pytest.mark.parametrize("when", ["before the first piece", "between pieces"])
async def test_cancel_ends_the_stream_as_cancelled_and_frees_the_server(when: str) -> None:
    answer = Answer(first_s=PATIENCE_S, pieces=reply()) if when.startswith("before") else Answer(pieces=reply(), stall_after=2)
    async with served() as (chat, [server]):
        server.script.append(answer)
        deltas: list[Delta] = []
        task = asyncio.create_task(ask(chat, into=deltas))
        await until(lambda: bool(server.n_running if when.startswith("before") else deltas))
        chat.cancel("s-1")
        chat.cancel("s-1")
        chat.cancel("unknown")
        await asyncio.wait_for(task, PATIENCE_S / 2)
        assert deltas[-1].finish == "cancelled"
        assert await until_idle(server)
        assert chat.health().ready


async def test_a_cancelled_task_frees_the_server() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(first_s=PATIENCE_S, pieces=reply()))
        task = asyncio.create_task(ask(chat))
        await until(lambda: bool(server.n_running))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await until_idle(server)
        assert chat.n_open == 0


async def test_silence_before_the_first_piece_is_a_stall() -> None:
    async with served(first_s=0.2) as (chat, [server]):
        server.script.append(Answer(first_s=PATIENCE_S))
        with pytest.raises(EngineStalled, match=r"no answer within 0\.2 s"):
            await ask(chat)
        assert len(server.requests) == 1
        assert not chat.health().ready
        assert "no answer" in chat.health().detail


async def test_headers_alone_do_not_count_as_progress() -> None:
    async with served(first_s=0.2) as (chat, [server]):
        server.script.append(Answer(pieces=(b": keep-alive\n\n",) * 40, piece_s=0.05))
        with pytest.raises(EngineStalled):
            await ask(chat)


async def test_silence_in_the_middle_is_a_stall_and_is_not_tried_again() -> None:
    async with served(2, next_s=0.5) as (chat, servers):
        for server in servers:
            server.script.append(Answer(pieces=reply(), stall_after=2))
        deltas: list[Delta] = []
        with pytest.raises(EngineStalled, match="no further piece"):
            await ask(chat, into=deltas)
        assert text_of(deltas) == "The sea "
        assert sum(len(server.requests) for server in servers) == 1


async def test_a_broken_connection_before_the_first_piece_is_tried_again() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=(b": hello\n\n", b""), cut_after=1))
        assert text_of(await ask(chat)) == TEXT
        assert len(server.requests) == 2


async def test_a_second_failure_is_the_end() -> None:
    async with served() as (chat, [server]):
        server.default = Answer(status=500, pieces=(b"out of order",), content_type="text/plain")
        with pytest.raises(EngineNotReady, match=r"HTTP 500\): 'out of order'"):
            await ask(chat)
        assert len(server.requests) == 2


async def test_a_broken_connection_after_a_piece_is_not_tried_again() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=reply(), cut_after=3))
        with pytest.raises(EngineError, match="broke off"):
            await ask(chat)
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_kept_and_a_lone_server_not_asked_again(status: int) -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(status=status, retry_after="7", content_type="application/json", pieces=(b'{"error": "full"}',)))
        with pytest.raises(EngineBusy if status == 429 else EngineNotReady) as caught:
            await ask(chat)
        assert caught.value.retry_after_s == 7.0
        assert len(server.requests) == 1


async def test_another_server_takes_over_at_once() -> None:
    async with served(3) as (chat, servers):
        endpoints = [parse(server.address) for server in servers]
        own = order("s", endpoints)[0]
        first = servers[endpoints.index(own)]
        first.default = Answer(status=503, retry_after="100", pieces=(b"loading",), content_type="text/plain")
        for turn in range(4):
            assert text_of(await ask(chat, f"s-{turn}")) == TEXT
        assert len(first.requests) == 1  # then it is left alone
        assert "2 of 3 servers answer" in chat.health().detail
        assert chat.health().ready


async def test_a_conversation_stays_with_its_server() -> None:
    async with served(3) as (chat, servers):
        for session in range(12):
            for turn in range(2):
                await ask(chat, f"call-{session}-{turn}")
        assert all(len(server.requests) % 2 == 0 for server in servers)
        assert sum(len(server.requests) > 0 for server in servers) >= 2


async def test_a_named_place_is_asked_and_no_other_one() -> None:
    async with served(3) as (chat, servers):
        assert chat.facts.places == 3
        prompt = await chat.render(HELLO, (), None)
        for place in (0, 1, 2):
            wanted = Generation(request_id="warm-1", prompt=prompt, place=place)
            async with aclosing(chat.generate(wanted)) as stream:
                assert [delta async for delta in stream]
        assert [len(server.requests) for server in servers] == [1, 1, 1]
        servers[1].script.extend([Answer(status=500, pieces=(b"x",))] * 2)
        with pytest.raises(EngineNotReady):
            async with aclosing(chat.generate(Generation(request_id="warm-2", prompt=prompt, place=1))) as stream:
                await anext(stream)
        assert [len(server.requests) for server in servers] == [1, 3, 1], "it is not read into another's cache instead"


async def test_a_server_that_comes_back_is_found_again() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(status=500, pieces=(b"x",)))
        server.script.append(Answer(status=500, pieces=(b"x",)))
        with pytest.raises(EngineNotReady):
            await ask(chat)
        assert not chat.health().ready
        await until(lambda: chat.health().ready)
        assert server.n_probes >= 2


async def test_a_refusal_is_shown_and_not_tried_again() -> None:
    async with served(2) as (chat, servers):
        for server in servers:
            server.default = Answer(status=404, content_type="application/json", pieces=(b'{"error": {"message": "no model sea-7b"}}',))
        with pytest.raises(EngineError, match=r"HTTP 404.*no model sea-7b"):
            await ask(chat)
        assert sum(len(server.requests) for server in servers) == 1
        assert chat.health().ready  # the request was wrong, not the server


async def test_a_prompt_that_is_too_long_is_told_as_such() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(status=400, pieces=(b'{"message": "maximum context length is 2048"}',)))
        with pytest.raises(ContextTooLong):
            await ask(chat)


async def test_a_web_page_instead_of_a_stream_is_told() -> None:
    async with served() as (chat, [server]):
        server.default = Answer(content_type="text/html; charset=utf-8", pieces=(b"<html>",))
        with pytest.raises(Unreadable, match="expected an event stream, got text/html; does its address end in /v1"):
            await ask(chat)


async def test_garbage_before_the_first_piece_is_tried_again_then_told() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=(b"data: <garbage>\n\n",)))
        assert text_of(await ask(chat)) == TEXT
        server.default = Answer(pieces=(b"data: <garbage>\n\n",))
        with pytest.raises(Unreadable, match="expected a chat completion chunk, got '<garbage>'"):
            await ask(chat)


@pytest.mark.parametrize("tail", ["no [DONE], held open", "no counts, held open", "[DONE], held open"])
async def test_a_finished_reply_does_not_wait_for_its_tail_for_long(tail: str) -> None:
    whole = reply()
    pieces = {"no [DONE], held open": whole[:-1], "no counts, held open": whole[:-2], "[DONE], held open": whole}[tail]
    async with served() as (chat, [server]):
        server.script.append(Answer(pieces=pieces, linger_s=PATIENCE_S))
        deltas = await asyncio.wait_for(ask(chat), PATIENCE_S / 2)
        assert text_of(deltas) == TEXT
        assert deltas[-1].finish == "stop"
        assert await until_idle(server)


async def test_closing_ends_open_requests_as_not_ready() -> None:
    async with served() as (chat, [server]):
        server.script.append(Answer(first_s=PATIENCE_S, pieces=(piece("x"), DONE)))
        task = asyncio.create_task(ask(chat))
        await until(lambda: bool(server.n_running))
        await chat.close()
        with pytest.raises(EngineNotReady, match="shutting down"):
            await task
        with pytest.raises(EngineNotReady):
            await ask(chat, "s-2")


async def test_many_conversations_at_once() -> None:
    async with served(2) as (chat, servers):
        for server in servers:
            server.default = Answer(pieces=GOOD.pieces, piece_s=0.01)
        replies = await asyncio.gather(*(ask(chat, f"c{n}-1") for n in range(60)))
        assert {text_of(deltas) for deltas in replies} == {TEXT}
        assert chat.n_open == 0
