"""Who is transcribed next, and what happens to callers that nobody needs any more."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import Struct

from engine.api import EngineBusy, EngineNotReady, Transcript, Transcription
from engine.asr.desk import Desk
from engine.asr.line import Line
from tests.unit.ears import LOUD, HeldServer, settle, wanted


class Waiting(Struct):
    wanted: Transcription


def entry(utterance: str, session: str = "", *, is_final: bool = True) -> Waiting:
    return Waiting(wanted(utterance, session, is_final=is_final))


def order(line: Line[Waiting]) -> list[str]:
    taken = []
    while (next_one := line.take(finals_only=False)) is not None:
        taken.append(next_one.wanted.utterance)
    return taken


def test_finals_go_before_partials_and_otherwise_the_first_comes_first() -> None:
    line: Line[Waiting] = Line(8)
    for utterance, is_final in (("p1", False), ("f1", True), ("p2", False), ("f2", True)):
        line.add(entry(utterance, is_final=is_final))
    assert order(line) == ["f1", "f2", "p1", "p2"]


def test_a_session_that_asks_often_does_not_hold_back_the_others() -> None:
    line: Line[Waiting] = Line(8)
    for utterance in ("a1", "a2", "a3", "b1", "c1"):
        line.add(entry(utterance, utterance[0]))
    assert order(line) == ["a1", "b1", "c1", "a2", "a3"]
    line.add(entry("a4", "a"))
    line.add(entry("b2", "b"))
    assert order(line) == ["b2", "a4"], "a was served last"


def test_who_got_a_partial_or_lost_a_final_goes_before_who_got_an_answer() -> None:
    line: Line[Waiting] = Line(8)
    got, partial, lost = entry("a1", "a"), entry("b1", "b", is_final=False), entry("c1", "c")
    for waiting in (got, partial, lost):
        line.add(waiting)
        assert line.take(finals_only=False) is waiting
    line.answered(got)
    line.answered(partial)
    for session in "abc":
        line.add(entry(f"{session}2", session))
    assert order(line) == ["b2", "c2", "a2"]


def test_a_newer_partial_takes_the_place_of_an_older_one() -> None:
    line: Line[Waiting] = Line(8)
    old, new = entry("u", is_final=False), entry("u", is_final=False)
    assert line.add(old) == []
    line.add(entry("v", is_final=False))
    assert line.add(new) == [old]
    assert line.take(finals_only=False) is new
    assert len(line) == 1


def test_a_final_makes_the_waiting_partial_needless() -> None:
    line: Line[Waiting] = Line(8)
    partial = entry("u", is_final=False)
    line.add(partial)
    assert line.add(entry("u")) == [partial]
    assert order(line) == ["u"]


def test_a_full_line_refuses_new_utterances_but_not_news_of_one_that_waits() -> None:
    line: Line[Waiting] = Line(2)
    for utterance in ("a", "b"):
        line.add(entry(utterance, is_final=False))
    with pytest.raises(EngineBusy, match="2 partials wait"):
        line.add(entry("c", is_final=False))
    assert len(line.add(entry("a", is_final=False))) == 1
    line.add(entry("c"))


def test_partials_are_not_taken_where_only_finals_may_run() -> None:
    line: Line[Waiting] = Line(2)
    line.add(entry("a", is_final=False))
    assert line.take(finals_only=True) is None
    assert line.take(finals_only=False) is not None


async def test_one_is_served_at_a_time_and_a_final_besides_a_running_partial() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=1, room=8)
    async with asyncio.TaskGroup() as group:
        for utterance, is_final in (("a", False), ("b", False), ("c", True), ("d", True)):
            group.create_task(desk.transcribe(wanted(utterance, is_final=is_final)))
        await settle()
        assert [t.utterance for t in server.began] == ["a", "c"]
        for _ in range(3):
            server.release()
            await settle()
        assert [t.utterance for t in server.began] == ["a", "c", "d"], "the partial waits for the one that runs"
        server.release(0)
        await settle()
        assert [t.utterance for t in server.began] == ["a", "c", "d", "b"]
        server.release()


async def test_a_final_ends_the_running_partial_of_its_utterance_and_nobody_elses() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=2, room=8)
    async with asyncio.TaskGroup() as group:
        partial = group.create_task(desk.transcribe(wanted("a", is_final=False)))
        other = group.create_task(desk.transcribe(wanted("b", is_final=False)))
        await settle()
        final = group.create_task(desk.transcribe(wanted("a")))
        await asyncio.wait_for(partial, 60)
        assert partial.result() is None
        await settle()
        server.release(1)
        server.release()
    assert server.cancelled == ["a"]
    assert final.result() == Transcript(text="a")
    assert other.result() == Transcript(text="b...")


async def test_a_later_final_takes_the_place_of_one_that_runs() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=2, room=8)
    async with asyncio.TaskGroup() as group:
        early = group.create_task(desk.transcribe(wanted("a")))
        await settle()
        late = group.create_task(desk.transcribe(wanted("a", pcm=LOUD * 2)))
        await settle()
        server.release()
    assert (early.result(), late.result()) == (None, Transcript(text="a"))
    assert server.cancelled == ["a"]


async def test_cancel_ends_what_waits_and_what_runs_of_one_utterance() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=1, room=8)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(desk.transcribe(wanted("a")))
        waiting = group.create_task(desk.transcribe(wanted("b")))
        after = group.create_task(desk.transcribe(wanted("c")))
        await settle()
        for utterance in ("b", "a", "a", "nobody"):
            desk.cancel(utterance)
        await asyncio.wait_for(asyncio.gather(running, waiting), 60)
        await settle()
        server.release()
    assert (running.result(), waiting.result(), after.result()) == (None, None, Transcript(text="c"))
    assert server.cancelled == ["a"]


async def test_a_caller_that_leaves_makes_room_for_the_next() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=1, room=8)
    tasks = [asyncio.ensure_future(desk.transcribe(wanted(utterance))) for utterance in ("a", "b", "c")]
    await settle()
    tasks[1].cancel()
    tasks[0].cancel()
    await settle()
    assert [t.utterance for t in server.began] == ["a", "c"]
    server.release()
    assert await tasks[2] == Transcript(text="c")
    assert desk.n_waiting == 0


async def test_a_caller_cancelled_at_its_turn_passes_it_on() -> None:
    server = HeldServer()
    desk = Desk(server.serve, parallel=1, room=8)
    first, second, third = [asyncio.ensure_future(desk.transcribe(wanted(utterance))) for utterance in ("a", "b", "c")]
    await settle()
    server.release()
    while not first.done():
        await asyncio.sleep(0)
    second.cancel()  # its turn is set, its task has not run yet
    await settle()
    assert server.began[-1].utterance == "c"
    server.release()
    await third


async def test_a_failure_reaches_its_caller_and_the_next_is_served() -> None:
    async def serve(transcription: Transcription) -> Transcript:
        if transcription.utterance == "bad":
            raise EngineNotReady("died")
        return Transcript(text="fine")

    desk = Desk(serve, parallel=1, room=8)
    bad, good = await asyncio.gather(desk.transcribe(wanted("bad")), desk.transcribe(wanted("good")), return_exceptions=True)
    assert isinstance(bad, EngineNotReady)
    assert good == Transcript(text="fine")
