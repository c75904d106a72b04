"""What those who keep books are told of a turn: one record each, every moment in its order, and never a word of it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from engine.api import EngineNotReady
from engine.fake import Fault, Script
from gateway.events import Interrupted, Say, SendText, StartSession, TurnDone
from gateway.turn import Caller, TurnRecord
from tests.session.microphone import talking
from tests.session.stage import stage

REPLY = "One two three four five. Six seven eight nine ten."


class Book:
    """A watcher that keeps everything, in order."""

    def __init__(self) -> None:
        self.records: list[TurnRecord] = []
        self.stopped: list[tuple[int, int]] = []  # (turn, records before it)

    def turn_stopped(self, session_id: str, turn: int, caller: Caller) -> None:
        self.stopped.append((turn, len(self.records)))

    def turn_ended(self, record: TurnRecord) -> None:
        self.records.append(record)


async def test_a_completed_turn_is_recorded_once_with_its_moments_in_order() -> None:
    book = Book()
    async with stage((REPLY,), watchers=(book,), start=StartSession(user="ann")) as scene:
        scene.attachment.traceparent = "00-1-2-01"
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone)
        await asyncio.sleep(5)
    (record,) = book.records
    assert (record.turn, record.status, record.input, record.n_segments) == (1, "completed", "text", 2)
    assert (record.caller.user, record.caller.traceparent) == ("ann", "00-1-2-01")
    assert record.n_characters == len(REPLY)
    assert record.first_delta_s is not None
    assert record.generated_s is not None
    assert record.started_s <= record.asked_s < record.first_delta_s < record.generated_s < record.ended_s
    for segment in record.segments:
        assert segment.asked_s is not None
        assert segment.sounded_s is not None
        assert segment.made_s is not None
        assert segment.sent_s is not None
        assert segment.decided_s <= segment.asked_s < segment.sounded_s <= segment.made_s <= segment.sent_s
    assert [segment.audio_ms for segment in record.segments] == pytest.approx([record.audio_ms / 2] * 2, rel=0.2)


async def test_no_word_of_the_conversation_is_in_a_record() -> None:
    book = Book()
    async with stage(("Zanzibar is warm.",), watchers=(book,)) as scene:
        scene.send(SendText(text="Tell me of Timbuktu."))
        await scene.until(TurnDone)
    text = msgspec.json.encode(book.records).decode()
    assert "Zanzibar" not in text
    assert "Timbuktu" not in text


async def test_an_interruption_is_told_before_the_turn_that_interrupts() -> None:
    book = Book()
    async with stage((REPLY * 5, "Yes."), watchers=(book,)) as scene:
        scene.send(SendText(text="Hello."))
        await asyncio.sleep(1)
        scene.send(SendText(text="Stop."))
        await scene.until(TurnDone, 2)
    assert book.stopped == [(1, 0)]
    by_turn = {record.turn: record for record in book.records}
    assert (by_turn[1].status, by_turn[1].stopped_by) == ("interrupted", "text")
    assert by_turn[1].usage.output_tokens > 0, "what was generated before the interruption is counted"
    assert by_turn[2].stopped_by is None


async def test_a_failed_turn_says_why() -> None:
    book = Book()
    async with stage([Script(tokens=("One",), fault=Fault(at=0, error=EngineNotReady))], watchers=(book,)) as scene:
        scene.send(SendText(text="Hello."))
        await scene.until(TurnDone)
    assert [(record.status, record.error) for record in book.records] == [("failed", "engine_not_ready")]


async def test_a_turn_whose_session_ends_under_it_is_recorded() -> None:
    book = Book()
    async with stage((REPLY,), watchers=(book,)) as scene:
        scene.send(Say(text=REPLY))
        await asyncio.sleep(0.5)
    assert [(record.turn, record.status) for record in book.records] == [(1, "dropped")]


async def test_a_turn_that_is_thrown_away_twice_is_recorded_once() -> None:
    book = Book()
    async with stage((REPLY,), watchers=(book,)) as scene:
        scene.send(SendText(text="Hello."))
        await asyncio.sleep(0.5)
        assert scene.session.floor is not None
        scene.session.floor.discard()
    assert [record.status for record in book.records] == ["dropped"]


async def test_a_turn_that_waits_for_its_listeners_last_word_ends_as_what_it_was() -> None:
    book = Book()
    async with stage((REPLY * 5, "Yes."), watchers=(book,)) as scene:
        scene.send(SendText(text="Hello."))
        await asyncio.sleep(1)
        scene.send(SendText(text="Stop."))
        await scene.until(Interrupted)
    assert [(record.turn, record.status) for record in book.records] == [(1, "interrupted"), (2, "dropped")]


async def test_a_spoken_turn_has_the_moments_of_its_utterance_and_each_draft_its_own_record() -> None:
    book = Book()
    heard = ("Book a table", "Book a table for two.")
    settings = {"hearing": {"partial_ms": 2000}}
    async with talking(heard, ("One two three. " * 9, "Done."), scores=(0.3, 0.95), settings=settings, watchers=(book,)) as (
        scene,
        microphone,
    ):
        await microphone.say(800)
        await asyncio.sleep(0.5)
        await microphone.say(800)
        await scene.until(TurnDone)
    dropped, kept = book.records
    assert (dropped.status, dropped.draft, dropped.turn, dropped.spoken) == ("dropped", 1, 1, None)
    assert dropped.usage.output_tokens > 0
    assert (kept.status, kept.input) == ("completed", "speech")
    spoken = kept.spoken
    assert spoken is not None
    assert spoken.began_s < spoken.ended_s <= spoken.decided_s <= spoken.text_s
    assert kept.started_s == spoken.ended_s
