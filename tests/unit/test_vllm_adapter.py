"""The adapter around vLLM: cancels that always reach it, deaths that sessions outlive, a hang that is told from work.

The engine here is a small real one that makes tokens when told to; vLLM itself runs in `tests/e2e/test_vllm.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from engine.api import (
    Delta,
    EngineBusy,
    EngineError,
    EngineNotReady,
    EngineSetupError,
    Generation,
    Message,
    Prompt,
    Sampling,
)
from engine.llm.vllm.deltas import DeltaReader
from engine.llm.vllm.embedded import Embedded, StepClock
from engine.llm.vllm.faults import explain, translate
from engine.llm.vllm.model import VllmModel
from engine.llm.vllm.requests import OpenRequests, reap
from engine.llm.vllm.tools import ToolReader
from engine.llm.vllm.watch import WatchLimits, judge
from engine.vllm_args import Plan
from tests.unit.test_vllm_rendering import Tokenizer


class EngineDeadError(Exception):
    """Named as vLLM's; the adapter goes by name."""


def output(text: str, ids: Sequence[int], finish: str | None = None, cached: int | None = None) -> Any:
    """As much of vLLM's `RequestOutput` as is read."""
    completion = SimpleNamespace(text=text, token_ids=list(ids), finish_reason=finish, stop_reason=None)
    return SimpleNamespace(outputs=[completion], finished=finish is not None, num_cached_tokens=cached)


class FakeEngine:
    """Streams "a" until aborted. `adding` holds requests back inside the moment in which vLLM does not know them yet."""

    context_tokens = 100

    def __init__(self) -> None:
        self.aborts: list[str] = []
        self.streams: dict[str, asyncio.Queue[Any]] = {}
        self.adding: asyncio.Event | None = None
        self.dead = False
        self.is_stopped = False
        self.answers = True
        self.max_tokens: list[int] = []

    @property
    def is_dead(self) -> bool:
        return self.dead

    @property
    def n_unfinished(self) -> int:
        return len(self.streams)

    async def stream(self, generation: Generation, max_tokens: int) -> AsyncGenerator[Any, None]:
        self.max_tokens.append(max_tokens)
        if self.adding is not None:
            await self.adding.wait()
        queue = self.streams[generation.request_id] = asyncio.Queue()
        if generation.request_id.startswith("canary"):
            if self.answers:
                await self.abort(generation.request_id)
        else:
            queue.put_nowait(output("a", (1097,), cached=2))
        try:
            while True:
                item = await queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
                if item.finished:
                    return
        finally:
            if not self.dead:  # what vLLM does when its reader goes
                self.streams.pop(generation.request_id, None)

    def say(self, request_id: str, item: Any) -> None:
        self.streams[request_id].put_nowait(item)

    async def abort(self, request_id: str) -> None:
        self.aborts.append(request_id)
        if request_id in self.streams:
            self.streams.pop(request_id).put_nowait(output("", (), "abort"))

    def die(self) -> None:
        self.dead = True
        for queue in self.streams.values():
            queue.put_nowait(EngineDeadError("gone"))

    def quiesce(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        self.is_stopped = True


class Workshop:
    """Builds fake engines; the n-th build fails when told so."""

    def __init__(self, fail: Callable[[int], str | None] = lambda _: None) -> None:
        self.built: list[FakeEngine] = []
        self._fail = fail
        self._n = 0

    def build(self, plan: Plan, steps: StepClock) -> Embedded:
        self._n += 1
        if (why := self._fail(self._n)) is not None:
            raise EngineSetupError(why)
        self.built.append(FakeEngine())
        return cast(Embedded, self.built[-1])

    def load_tokenizer(self, model: str, environment: object) -> Any:
        return Tokenizer()

    def load_tools(self, wanted: str | None, tokenizer: Any) -> Callable[[Sequence[Any]], ToolReader]:
        return lambda _: ToolReader(CallParser(), None)


class CallParser:
    """Calls are written `@name`; everything from the mark on belongs to the call."""

    def extract_tool_calls_streaming(self, previous_text: str, current_text: str, *_: Any) -> Any:
        end = current_text.find("@")
        shown = current_text[len(previous_text) :] if end < 0 else current_text[len(previous_text) : end]
        return SimpleNamespace(content=shown)

    def extract_tool_calls(self, model_output: str, request: Any) -> Any:
        _, mark, name = model_output.partition("@")
        if name == "broken":
            raise ValueError("no JSON")
        calls = [SimpleNamespace(function=SimpleNamespace(name=name, arguments="{}"))] if mark and name else []
        return SimpleNamespace(tools_called=bool(calls), tool_calls=calls)


def made(workshop: Workshop, **limits: Any) -> VllmModel:
    return VllmModel(Plan(model="folder/tiny", arguments={}, **limits), workshop.build, workshop.load_tokenizer, workshop.load_tools)


class Running:
    """A started model, closed at the end."""

    def __init__(self, workshop: Workshop | None = None, **limits: Any) -> None:
        self.workshop = workshop or Workshop()
        self.model = made(self.workshop, **limits)

    async def __aenter__(self) -> Running:
        await self.model.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.model.close()

    @property
    def engine(self) -> FakeEngine:
        return self.workshop.built[-1]


def asked(request_id: str = "r", max_tokens: int = 20, n_prompt: int = 4) -> Generation:
    prompt = Prompt(messages=(Message(role="user", text="hi"),), ids=tuple(range(1001, 1001 + n_prompt)), text="hi")
    return Generation(request_id=request_id, prompt=prompt, sampling=Sampling(max_tokens=max_tokens))


async def collect(model: VllmModel, generation: Generation) -> list[Delta]:
    async with aclosing(model.generate(generation)) as deltas:
        return [delta async for delta in deltas]


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not fact():
            await asyncio.sleep(0.005)


async def test_start_returns_when_a_token_was_made() -> None:
    async with Running() as running:
        assert running.model.health().ready
        assert running.model.name == "tiny (vLLM)"
    assert running.engine.is_stopped
    assert not running.model.health().ready


async def test_a_failed_first_start_is_told_and_not_retried() -> None:
    model = made(Workshop(lambda _: "no such folder"))
    with pytest.raises(EngineSetupError, match="no such folder"):
        await model.start()
    assert model.health().detail == "no such folder"
    await model.close()


async def test_a_base_model_is_told_before_its_weights_are_loaded() -> None:
    workshop = Workshop()

    def without_template(*_: object) -> Any:
        tokenizer = Tokenizer()
        tokenizer.chat_template = ""
        return tokenizer

    model = VllmModel(Plan(model="folder/tiny", arguments={}), workshop.build, without_template, workshop.load_tools)
    with pytest.raises(EngineSetupError, match="no chat template: it is a base model"):
        await model.start()
    assert not workshop.built
    await model.close()


async def test_a_long_start_says_what_it_is_doing_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("engine.llm.vllm.model._PROGRESS_S", 0.02)
    seen: list[str] = []

    class Slow(Workshop):
        def build(self, plan: Plan, steps: StepClock) -> Embedded:
            ends_at = time.monotonic() + 60
            while not any(record.message == "vllm still starting" for record in caplog.records) and time.monotonic() < ends_at:
                time.sleep(0.01)
                seen.append(model.health().detail)
            return super().build(plan, steps)

    workshop = Slow()
    model = made(workshop)
    await model.start()
    assert any(detail.startswith("loading the model, ") and detail.endswith(" s so far") for detail in seen)
    told = [(record.message, getattr(record, "phase", "")) for record in caplog.records]
    assert ("vllm still starting", "loading the model") in told
    assert [phase for message, phase in told if message == "vllm start phase"] == ["loading the tokenizer", "loading the model"]
    await model.close()


async def test_closing_while_loading_gives_up_the_start() -> None:
    workshop = Workshop()
    model = made(workshop)
    task = asyncio.create_task(model.start(), name="start")
    await asyncio.sleep(0)
    await model.close()
    with pytest.raises(EngineSetupError, match="closed while starting"):
        await task
    assert all(engine.is_stopped for engine in workshop.built)


async def test_a_reply_streams_to_its_end() -> None:
    async with Running() as running:
        task = asyncio.create_task(collect(running.model, asked()), name="reply")
        await until(lambda: "r" in running.engine.streams)
        running.engine.say("r", output("b", (1098, 2), "stop"))
        deltas = await task
        assert "".join(delta.text for delta in deltas) == "ab"
        assert deltas[-1].finish == "stop"
        assert deltas[-1].usage is not None
        assert (deltas[-1].usage.prompt_tokens, deltas[-1].usage.cached_tokens, deltas[-1].usage.output_tokens) == (4, 2, 3)
        assert running.engine.aborts[1:] == []  # the canary's own is the only one


async def test_a_reply_may_not_outgrow_the_context() -> None:
    async with Running() as running:
        async with aclosing(running.model.generate(asked(max_tokens=500, n_prompt=90))) as deltas:
            await anext(deltas)
        assert running.engine.max_tokens[-1] == 10


async def test_cancel_ends_the_stream_and_tells_the_engine() -> None:
    async with Running() as running:
        seen = []
        async with aclosing(running.model.generate(asked())) as deltas:
            async for delta in deltas:
                seen.append(delta)
                running.model.cancel("r")
        assert seen[-1].finish == "cancelled"
        assert "r" in running.engine.aborts


async def test_cancel_of_unknown_and_ended_requests_is_ignored() -> None:
    async with Running() as running:
        running.model.cancel("nobody")
        async with aclosing(running.model.generate(asked())) as deltas:
            await anext(deltas)
        running.model.cancel("r")
        await until(lambda: running.engine.n_unfinished == 0)


async def test_a_cancel_while_the_engine_adds_the_request_is_repeated_until_it_holds() -> None:
    async with Running() as running:
        running.engine.adding = asyncio.Event()
        task = asyncio.create_task(collect(running.model, asked()), name="reply")
        await asyncio.sleep(0)
        running.model.cancel("r")
        await until(lambda: "r" in running.engine.aborts)  # it meant nothing: the engine does not know the request yet
        running.engine.adding.set()
        deltas = await task
        assert deltas[-1].finish == "cancelled"
        assert running.engine.aborts.count("r") >= 2


@pytest.mark.parametrize("n_steps", range(8))
async def test_a_consumer_cancelled_at_any_step_leaves_nothing(n_steps: int) -> None:
    async with Running() as running:
        task = asyncio.create_task(collect(running.model, asked()), name="reply")
        for _ in range(n_steps):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: running.engine.n_unfinished == 0)
        if n_steps > 1:
            await until(lambda: "r" in running.engine.aborts)


async def test_more_requests_than_allowed_are_refused() -> None:
    async with Running(open_requests=1) as running, aclosing(running.model.generate(asked("one"))) as deltas:
        await anext(deltas)
        with pytest.raises(EngineBusy, match="1 are allowed"):
            await collect(running.model, asked("two"))


async def test_an_id_in_use_is_refused() -> None:
    async with Running() as running, aclosing(running.model.generate(asked())) as deltas:
        await anext(deltas)
        with pytest.raises(EngineError, match="in use"):
            await collect(running.model, asked())


async def test_death_ends_streams_and_a_new_engine_follows() -> None:
    async with Running() as running:
        first = running.engine
        async with aclosing(running.model.generate(asked())) as deltas:
            await anext(deltas)
            first.die()
            with pytest.raises(EngineNotReady):
                await anext(deltas)
        assert not running.model.health().ready
        with pytest.raises(EngineNotReady):
            await collect(running.model, asked("meanwhile"))
        prompt = await running.model.render([Message(role="user", text="still here")], (), None)
        assert prompt.ids
        await until(lambda: running.model.health().ready)
        assert first.is_stopped
        assert running.engine is not first
        assert running.model.n_restarts == 1
        async with aclosing(running.model.generate(asked("again"))) as deltas:
            assert (await anext(deltas)).text == "a"


async def test_a_restart_that_fails_is_tried_again() -> None:
    workshop = Workshop(lambda number: "not enough memory" if number == 2 else None)
    async with Running(workshop) as running:
        running.engine.die()
        await until(lambda: running.model.n_restarts == 2 and running.model.health().ready)
        assert len(workshop.built) == 2


async def test_a_hung_engine_is_replaced() -> None:
    async with Running(canary_s=0.1, hung_s=0.1) as running:
        first = running.engine
        first.answers = False
        await until(lambda: running.engine is not first and running.model.health().ready)
        assert first.is_stopped


async def test_closing_ends_open_streams_as_not_ready() -> None:
    running = Running()
    await running.model.start()
    async with aclosing(running.model.generate(asked())) as deltas:
        await anext(deltas)
        closing = asyncio.create_task(running.model.close(), name="close")
        with pytest.raises(EngineNotReady):
            await anext(deltas)
        await closing
    await running.model.close()


async def test_a_prompt_of_another_engine_is_refused() -> None:
    async with Running() as running:
        with pytest.raises(EngineError, match="render it with this engine"):
            await collect(running.model, Generation(request_id="r", prompt=Prompt(messages=())))


async def test_the_reaper_gives_up_on_a_reader_that_sleeps() -> None:
    aborts: list[str] = []

    async def abort(request_id: str) -> None:
        aborts.append(request_id)

    requests = OpenRequests()
    request = requests.add("r")
    await asyncio.wait_for(reap(abort, request), 60)
    assert len(aborts) == 6
    requests.end(request)
    await reap(abort, request)
    assert len(aborts) == 7


def never(_: Sequence[int]) -> bool:
    return False


def read(*outputs: Any, inside: Callable[[Sequence[int]], bool] = never) -> list[Delta]:
    reader = DeltaReader(5, inside)
    return [reader.read(each) for each in outputs]


def test_the_token_that_ends_a_reply_is_counted_but_not_kept() -> None:
    last = read(output("a", (7,)), output("", (2,), "stop"))[-1]
    assert last.ids == ()
    assert last.usage is not None
    assert last.usage.output_tokens == 2


def test_a_merged_last_delta_gives_its_text_without_the_end_token() -> None:
    assert read(output("ab", (7, 8, 2), "stop"))[0].ids == (7, 8)


def test_ids_wait_for_the_text_of_their_character() -> None:
    deltas = read(output("", (7,)), output("", (8,)), output("你", (9,)))
    assert [delta.ids for delta in deltas] == [(), (), (7, 8, 9)]
    assert [delta.n_tokens for delta in deltas] == [1, 1, 1]


def test_no_ids_follow_a_control_token_inside_a_reply() -> None:
    reader = DeltaReader(5, never, frozenset({1, 2}))
    outputs = [output("a", (7,)), output("", (1,)), output("b", (8,)), output("c", (9, 2), "stop")]
    assert [reader.read(each).ids for each in outputs] == [(7,), (), (), ()]


def test_the_stop_token_at_the_end_is_no_control_token_inside() -> None:
    reader = DeltaReader(5, never, frozenset({1, 2}))
    assert reader.read(output("ab", (7, 8, 2), "stop")).ids == (7, 8)


def test_a_reply_cut_inside_a_character_keeps_whole_ones() -> None:
    assert read(output("", (7,)), output("", (8,), "length"))[-1].ids == ()
    assert read(output("a", (6, 7), "length"), inside=lambda ids: ids[-1] == 7)[-1].ids == (6,)


@pytest.mark.parametrize(("reason", "finish"), [("stop", "stop"), ("length", "length"), ("abort", "cancelled"), ("repetition", "stop")])
def test_vllms_reasons_become_ours(reason: str, finish: str) -> None:
    assert read(output("a", (7,), reason))[-1].finish == finish


def test_an_error_of_one_request_is_told() -> None:
    with pytest.raises(EngineError, match="'error'"):
        read(output("", (), "error"))


def test_cached_tokens_of_the_first_output_are_remembered() -> None:
    last = read(output("a", (7,), cached=32), output("b", (8,), "length", cached=None))[-1]
    assert last.usage is not None
    assert last.usage.cached_tokens == 32


LIMITS = WatchLimits(canary_s=10, hung_s=20)


@pytest.mark.parametrize(
    ("now_s", "last_step_s", "canary_since_s", "verdict"),
    [
        (100, 95, None, "fine"),  # it stepped just now
        (100, 90, None, "needs_canary"),  # idle or hung?
        (100, 70, 90, "fine"),  # the canary has time yet
        (100, 99, 10, "fine"),  # the canary waits long in a busy engine's queue
        (100, 70, 80, "hung"),
        (100, 80, 70, "hung"),  # it stepped since, and then stopped
    ],
)
def test_hung_is_told_from_busy_and_idle(now_s: float, last_step_s: float, canary_since_s: float | None, verdict: str) -> None:
    assert judge(LIMITS, now_s, last_step_s, canary_since_s) == verdict


def test_a_stat_logger_does_whatever_vllm_asks() -> None:
    clock = StepClock()
    before = clock.last_s
    clock.record(scheduler_stats=None, iteration_stats=None, engine_idx=0)
    clock.log_engine_initialized()
    clock.something_of_the_next_release(1, two=3)
    assert clock.last_s >= before


def test_errors_are_translated_by_name() -> None:
    class QueueOverflowError(Exception):
        pass

    class VLLMValidationError(ValueError):
        pass

    assert isinstance(translate(EngineDeadError()), EngineNotReady)
    assert isinstance(translate(QueueOverflowError()), EngineBusy)
    assert "bad prompt" in str(translate(VLLMValidationError("bad prompt\nand a page of detail")))


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB", "take an FP8 checkpoint"),
        ("Free memory on device cuda:0 (3/139 GiB) is less than desired", "another process holds the GPU"),
        ("Total number of attention heads (9) must be divisible by tensor parallel size (2).", "must divide"),
        ("User-specified max_model_len (9000) is greater than the derived max_model_len", "longer than the model's own context"),
        ("Quantization method specified in the model config (awq) does not match", "leave llm.vllm.quantization out"),
        ("something else", "vLLM's own log"),
    ],
)
def test_failed_starts_say_what_to_do(message: str, hint: str) -> None:
    told = explain(ValueError(message), "m")
    assert hint in told
    assert message[:40] in told


async def test_a_model_whose_calls_no_parser_reads_takes_no_tools() -> None:
    async with Running() as running:
        assert running.model.facts.takes_tools
    workshop = Workshop()
    deaf = VllmModel(Plan(model="folder/tiny", arguments={}), workshop.build, workshop.load_tokenizer, lambda *_: None)
    await deaf.start()
    assert not deaf.facts.takes_tools
    await deaf.close()


def through_tools(*deltas: Delta) -> list[Delta]:
    reader = ToolReader(CallParser(), None)
    return [reader.read(delta) for delta in deltas]


def test_a_call_is_given_out_whole_and_its_text_and_ids_are_held_back() -> None:
    first, second, last = through_tools(Delta(text="Hi ", ids=(1,)), Delta(text="@loo", ids=(2,)), Delta(text="k", ids=(3,), finish="stop"))
    assert (first.text, first.ids) == ("Hi ", (1,))
    assert (second.text, second.ids) == ("", ())
    assert (last.text, last.ids, last.finish) == ("", (), "tool_calls")
    assert [call.name for call in last.tool_calls] == ["look"]
    assert last.tool_calls[0].call_id.startswith("call_")


def test_a_mark_that_is_no_call_after_all_comes_out_as_text() -> None:
    deltas = through_tools(Delta(text="a", ids=(1,)), Delta(text="@", ids=(2,)), Delta(text="", finish="stop"))
    assert "".join(delta.text for delta in deltas) == "a@"
    assert [token for delta in deltas for token in delta.ids] == [1, 2]
    assert deltas[-1].finish == "stop"


def test_a_call_that_cannot_be_read_is_said_as_text() -> None:
    deltas = through_tools(Delta(text="@broken", ids=(1,)), Delta(text="", finish="stop"))
    assert "".join(delta.text for delta in deltas) == "@broken"
    assert deltas[-1].tool_calls == ()


def test_a_cancelled_reply_calls_nothing() -> None:
    deltas = through_tools(Delta(text="@look", ids=(1,)), Delta(text="", finish="cancelled"))
    assert deltas[-1].tool_calls == ()
    assert deltas[-1].finish == "cancelled"


async def test_calls_are_read_where_tools_were_offered() -> None:
    async with Running() as running:
        prompt = Prompt(messages=(), ids=(1001,), text="hi", tools=({"type": "function"},))
        task = asyncio.create_task(collect(running.model, Generation(request_id="r", prompt=prompt)), name="reply")
        await until(lambda: "r" in running.engine.streams)
        running.engine.say("r", output("@look", (7,), "stop"))
        deltas = await task
        assert [call.name for call in deltas[-1].tool_calls] == ["look"]
