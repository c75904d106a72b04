"""Who speaks, who finishes, who rests: every rule of the chain as a table, without a loop."""

from __future__ import annotations

import random

import pytest

from engine.api import EngineError, SpeechChunk, SpeechCut, Style, Synthesis, WordTiming
from engine.tts.chain.breaker import Breaker, BreakerSettings
from engine.tts.chain.progress import Progress
from engine.tts.chain.rest import divide, next_word, said_until, units
from engine.tts.chain.rule import Breakers, Candidate, Failure, Plan

A, B, C = Candidate("edge", "a"), Candidate("piper", "b"), Candidate("espeak", "c")
SETTINGS = BreakerSettings(rest_s=20.0, longest_rest_s=80.0)


def breakers() -> Breakers:
    return Breakers(["edge", "piper", "espeak"], SETTINGS)


def outcome(plan: Plan, *kinds: str, now_s: float = 0.0) -> list[Candidate | None]:
    """Who is asked, in order, when each failure in `kinds` follows the one before."""
    asked = [plan.next(now_s)]
    for kind in kinds:
        current = asked[-1]
        assert current is not None
        plan.failed(current, Failure(kind), now_s)
        asked.append(plan.next(now_s))
    return asked


@pytest.mark.parametrize("kind", ["lost", "cut", "protocol", "corrupt", "failed"])
def test_a_fast_fault_is_tried_once_more_and_then_given_on(kind: str) -> None:
    assert outcome(Plan([A, B], breakers()), kind, kind, kind, kind) == [A, A, B, B, None]


@pytest.mark.parametrize("kind", ["stalled", "refused", "not_ready"])
def test_a_slow_or_certain_fault_is_given_on_at_once(kind: str) -> None:
    assert outcome(Plan([A, B, C], breakers()), kind, kind, kind) == [A, B, C, None]


@pytest.mark.parametrize("kind", ["busy", "no_voice"])
def test_what_is_no_fault_passes_the_text_on_without_a_rest(kind: str) -> None:
    shared = breakers()
    assert outcome(Plan([A, B], shared), kind) == [A, B]
    assert Plan([A, B], shared).next(0.0) == A


def test_a_resting_voice_is_passed_over_and_tried_again_later() -> None:
    shared = breakers()
    outcome(Plan([A, B], shared), "stalled")
    assert Plan([A, B], shared).next(19.9) == B
    assert Plan([A, B], shared).next(20.0) == A


def test_after_a_rest_one_text_at_a_time_tries() -> None:
    shared = breakers()
    outcome(Plan([A, B], shared), "stalled")
    first = Plan([A, B], shared)
    assert first.next(20.0) == A
    assert Plan([A, B], shared).next(20.0) == B
    first.succeeded(A)
    assert Plan([A, B], shared).next(20.0) == A


def test_a_listener_who_leaves_frees_the_try() -> None:
    shared = breakers()
    outcome(Plan([A, B], shared), "stalled")
    first = Plan([A, B], shared)
    assert first.next(20.0) == A
    first.left(A)
    assert Plan([A, B], shared).next(20.0) == A


def test_when_all_rest_the_one_that_rests_least_longer_is_asked() -> None:
    shared = breakers()
    outcome(Plan([A, B], shared), "stalled", now_s=0.0)
    plan = Plan([B], shared)
    plan.next(5.0)
    plan.failed(B, Failure("stalled"), 5.0)
    assert outcome(Plan([A, B], shared), "stalled", now_s=6.0) == [A, B]


def test_a_service_that_asks_for_time_gets_it() -> None:
    shared = breakers()
    plan = Plan([A, B], shared)
    plan.next(0.0)
    assert plan.failed(A, Failure("busy", retry_after_s=300.0), 0.0)
    assert plan.next(0.0) == B
    assert Plan([A, B], shared).next(299.0) == B
    assert Plan([A, B], shared).next(300.0) == A


def test_rests_double_and_a_success_forgets() -> None:
    breaker = Breaker(SETTINGS)
    lengths, now = [], 0.0
    for _ in range(4):
        breaker.begin()
        assert breaker.on_fault(now, is_hopeless=True)
        lengths.append(breaker.ready_at() - now)
        now = breaker.ready_at()
    assert lengths == [20, 40, 80, 80]
    breaker.on_success()
    breaker.begin()
    breaker.on_fault(now, is_hopeless=True)
    assert breaker.ready_at() == now + 20


def test_texts_that_fail_together_are_one_reason() -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(5):
        breaker.on_fault(1.0, is_hopeless=True)
    assert breaker.ready_at() == 21.0


def test_a_voice_whose_every_second_text_fails_rests() -> None:
    breaker = Breaker(SETTINGS)
    rests = []
    for i in range(10):
        if i % 2:
            breaker.on_success()
        else:
            rests.append(breaker.on_fault(0.0, is_hopeless=False))
    assert rests == [False, False, False, False, True]


def test_every_plan_ends() -> None:
    for seed in range(300):
        rng, shared = random.Random(seed), breakers()
        for _ in range(5):
            plan, n_asked, now = Plan([A, B, C], shared), 0, rng.uniform(0, 100)
            while (candidate := plan.next(now)) is not None:
                n_asked += 1
                now += rng.random()
                plan.failed(candidate, Failure(rng.choice(["lost", "stalled", "busy", "refused"]), rng.choice([None, None, 3.0])), now)
            assert 3 <= n_asked <= 6


TEXT = "Hello there, good morning!"


@pytest.mark.parametrize(("start", "word"), [(0, 0), (5, 6), (11, 13), (25, 26), (26, 26)])
def test_the_rest_begins_at_a_word(start: int, word: int) -> None:
    assert next_word(TEXT, start) == word


@pytest.mark.parametrize(
    ("text", "said_ms", "place"),
    [(TEXT, 0, 0), (TEXT, 300, 0), (TEXT, 501, 6), (TEXT, 1001, 13), (TEXT, 9999, 26), ("你好世界", 500, 1), ("你好世界", 9999, 4)],
)
def test_without_word_times_the_word_being_said_is_said_again(text: str, said_ms: float, place: int) -> None:
    assert said_until(text, said_ms, 100.0) == place


def test_wide_characters_are_long() -> None:
    assert (units("abc 1!"), units("你好a")) == (4, 7)


@pytest.mark.parametrize("text", ["", "short", "One. " * 300, "x" * 1700, "中文，很长的句子。" * 100, "a b " * 400])
def test_a_long_text_is_divided_without_loss(text: str) -> None:
    parts = divide(text, 500)
    assert "".join(parts) == text
    assert all(len(part) <= 500 for part in parts)
    if text.startswith(("One", "中")):
        assert all(part.rstrip().endswith((".", "。")) for part in parts)


def chunk(ms: int, *words: WordTiming) -> SpeechChunk:
    return SpeechChunk(pcm=b"\x01\x00" * (ms * 24), words=words)


def begun(text: str, voice: str = "a") -> Progress:
    progress = Progress(Synthesis(request_id="r", text=text, voice="a", language="en"))
    progress.open_part(text)
    progress.begin(voice, 100.0)
    return progress


def test_a_known_place_is_where_the_next_voice_goes_on() -> None:
    progress = begun(TEXT)
    progress.place(chunk(500, WordTiming(start_ms=0, end_ms=400, start=0, end=5)))
    progress.cut(SpeechCut("x", spoken=5))
    progress.begin("b", 100.0)
    assert progress.request(Style()).text == "there, good morning!"
    assert progress.request(Style()).request_id == "r#2"
    placed = progress.place(chunk(300, WordTiming(start_ms=10, end_ms=290, start=0, end=5)))
    assert placed is not None
    assert placed.words == (WordTiming(start_ms=510, end_ms=790, start=6, end=11),)
    assert placed.voice == "b"


def test_the_same_voice_drops_what_was_heard() -> None:
    progress = begun(TEXT)
    progress.place(chunk(300))
    progress.cut(EngineError("x"))
    progress.begin("a", 100.0)
    assert progress.request(Style()).text == TEXT
    assert progress.place(chunk(200)) is None
    placed = progress.place(chunk(250, WordTiming(start_ms=320, end_ms=440, start=6, end=11)))
    assert placed is not None
    assert len(placed.pcm) == 150 * 48
    assert placed.words == (WordTiming(start_ms=320, end_ms=440, start=6, end=11),)
    progress.cut(EngineError("x"))
    progress.begin("b", 100.0)
    assert progress.request(Style()).text == TEXT  # 450 ms of five letters at 100 ms: the first word is being said


def test_another_voice_goes_on_about_there() -> None:
    progress = begun(TEXT)
    progress.place(chunk(1100))
    progress.cut(EngineError("x"))
    progress.begin("b", 100.0)
    assert progress.request(Style()).text == "good morning!"
    placed = progress.place(chunk(10, WordTiming(start_ms=0, end_ms=5, start=0, end=4)))
    assert placed is not None
    assert placed.words[0].start == 13
    assert placed.words[0].start_ms == 1100


def test_parts_follow_each_other() -> None:
    progress = Progress(Synthesis(request_id="r", text="one. two.", voice="a", language="en"))
    progress.open_part("one. ")
    progress.begin("a", 100.0)
    progress.place(chunk(100))
    progress.end()
    progress.open_part("two.")
    progress.begin("a", 100.0)
    placed = progress.place(chunk(50, WordTiming(start_ms=0, end_ms=40, start=0, end=3)))
    assert placed is not None
    assert placed.words == (WordTiming(start_ms=100, end_ms=140, start=5, end=8),)


def test_a_voices_pace_is_learned_from_whole_texts() -> None:
    progress = begun("twelve units")
    progress.place(chunk(1100))
    assert progress.end() == pytest.approx(100.0)
    assert begun("short").end() is None
