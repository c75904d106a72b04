"""Endpointing by numbers: start, likely end, end, noise; how score and text move the wait; barge-in by words; echoes."""

from __future__ import annotations

import pytest

from gateway.config import BargeInSettings, EndpointingSettings
from gateway.endpointing import (
    Decision,
    EndLikely,
    Endpointer,
    NoiseHeard,
    Reading,
    ScoreWanted,
    SpeechResumed,
    SpeechStarted,
    TurnEnded,
    is_echo,
    judge,
    read,
    read_heard,
    wait_ms,
)
from gateway.endpointing.echo import recent, units

FRAME_MS = 32
SETTINGS = EndpointingSettings()


def run(script: str, endpointer: Endpointer | None = None) -> tuple[Endpointer, list[Decision]]:
    """Frames as letters: `v` voice, `s` silence, `d` doubtful; a digit string in braces is a score, `<...>` a text."""
    endpointer = endpointer or Endpointer(SETTINGS)
    decisions: list[Decision] = []
    at_ms, place = 0.0, 0
    while place < len(script):
        char = script[place]
        if char == "{":
            end = script.index("}", place)
            decisions += endpointer.score(float(script[place + 1 : end]))
            place = end + 1
        elif char == "<":
            end = script.index(">", place)
            decisions += endpointer.take_text(script[place + 1 : end])
            place = end + 1
        else:
            decisions += endpointer.hear(at_ms, FRAME_MS, {"v": 0.9, "d": 0.4, "s": 0.05}[char])
            at_ms += FRAME_MS
            place += 1
    return endpointer, decisions


def kinds(decisions: list[Decision]) -> list[type]:
    """Without the wish for a score, which comes in every pause that is long enough."""
    return [type(decision) for decision in decisions if not isinstance(decision, ScoreWanted)]


def test_silence_decides_nothing() -> None:
    assert run("s" * 1000)[1] == []


def test_one_loud_frame_starts_nothing() -> None:
    assert run("s" * 10 + "v" + "s" * 10 + "v" + "s" * 100)[1] == []


def test_speech_is_told_with_the_second_frame_and_dated_to_the_first() -> None:
    decisions = run("sssvv")[1]
    assert decisions == [SpeechStarted(3 * FRAME_MS)]


def test_a_click_is_noise() -> None:
    decisions = run("ss" + "vv" + "s" * 60)[1]
    assert kinds(decisions) == [SpeechStarted, NoiseHeard]


def test_a_doubtful_frame_goes_on_but_never_begins() -> None:
    assert run("d" * 50)[1] == []
    assert kinds(run("vv" + "d" * 50)[1]) == [SpeechStarted]


def test_the_end_is_first_likely_then_decided_after_the_unsure_wait() -> None:
    decisions = run("v" * 20 + "s" * 40)[1]
    assert kinds(decisions) == [SpeechStarted, EndLikely, TurnEnded]
    ended = decisions[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.at_ms == 20 * FRAME_MS
    assert SETTINGS.unsure_ms <= ended.waited_ms < SETTINGS.unsure_ms + FRAME_MS
    assert ended.why == "silence"


def test_a_sure_score_ends_the_turn_after_the_sure_wait() -> None:
    decisions = run("v" * 20 + "ss<What is it?>{0.9}" + "s" * 40)[1]
    ended = decisions[-1]
    assert isinstance(ended, TurnEnded)
    assert SETTINGS.sure_ms <= ended.waited_ms < SETTINGS.sure_ms + FRAME_MS


def test_however_sure_the_sound_is_the_words_are_waited_for_but_not_for_ever() -> None:
    assert kinds(run("v" * 20 + "ss{0.9}" + "s" * 12)[1]) == [SpeechStarted, EndLikely]
    assert kinds(run("v" * 20 + "ss{0.9}" + "s" * 12 + "<What is it?>")[1]) == [SpeechStarted, EndLikely, TurnEnded]
    assert kinds(run("v" * 20 + "ss{0.9}" + "s" * 12 + "<What is it and>" + "s" * 4)[1]) == [SpeechStarted, EndLikely]
    ended = run("v" * 20 + "ss{0.9}" + "s" * 40)[1][-1]
    assert isinstance(ended, TurnEnded)
    assert SETTINGS.unsure_ms <= ended.waited_ms < SETTINGS.unsure_ms + FRAME_MS


def test_a_score_that_comes_late_ends_the_turn_at_once() -> None:
    decisions = run("v" * 20 + "s" * 12 + "<>{0.9}")[1]
    assert kinds(decisions) == [SpeechStarted, EndLikely, TurnEnded]


def test_a_pause_is_judged_once_and_a_later_one_again() -> None:
    decisions = run("v" * 20 + "s" * 12 + "v" * 20 + "s" * 12)[1]
    assert [type(decision) for decision in decisions] == [SpeechStarted, EndLikely, ScoreWanted, SpeechResumed, EndLikely, ScoreWanted]


def test_a_pause_is_no_end_and_forgets_its_score() -> None:
    decisions = run("v" * 20 + "ss<I would like to>{0.3}" + "s" * 8 + "v" * 20 + "s" * 24)[1]
    assert kinds(decisions) == [SpeechStarted, EndLikely, SpeechResumed, EndLikely]


def test_one_frame_of_voice_in_a_pause_changes_nothing() -> None:
    decisions = run("v" * 20 + "s" * 10 + "v" + "s" * 20)[1]
    assert kinds(decisions) == [SpeechStarted, EndLikely, TurnEnded]
    assert decisions[-1] == TurnEnded(20 * FRAME_MS, 25 * FRAME_MS, "silence")


def test_a_button_ends_at_once_and_only_what_began() -> None:
    endpointer, _ = run("v" * 10)
    assert kinds(endpointer.force()) == [TurnEnded]
    assert endpointer.force() == []


def test_endless_speech_is_cut_at_the_bound() -> None:
    endpointer = Endpointer(EndpointingSettings(longest_utterance_s=2.0))
    decisions = run("v" * 200, endpointer)[1]
    assert kinds(decisions)[:3] == [SpeechStarted, TurnEnded, SpeechStarted]
    assert isinstance(decisions[1], TurnEnded)
    assert decisions[1].why == "length"


def test_ten_minutes_of_noise_at_every_level_below_the_bound_start_nothing() -> None:
    endpointer = Endpointer(SETTINGS)
    frames = 10 * 60 * 1000 // FRAME_MS
    assert not any(endpointer.hear(n * FRAME_MS, FRAME_MS, (n % 49) / 100) for n in range(frames))


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("", Reading.EMPTY),
        (" ... ", Reading.EMPTY),
        ("What time is it?", Reading.COMPLETE),
        ("What are you looking for?", Reading.COMPLETE),
        ("I think so.", Reading.COMPLETE),
        ("See you then.", Reading.COMPLETE),
        ("Tell me about the sea", Reading.OPEN),
        ("It costs 25.", Reading.COMPLETE),
        ("I was born in 1985.", Reading.COMPLETE),
        ("I want a coffee and", Reading.HESITATING),
        ("I want a coffee and.", Reading.HESITATING),
        ("Because.", Reading.HESITATING),
        ("I was thinking, um", Reading.HESITATING),
        ("Uh...", Reading.HESITATING),
        ("um", Reading.HESITATING),
        ("I'd like to book a table for", Reading.HESITATING),
        ("So, first of all,", Reading.HESITATING),
        ("Can you tell me the", Reading.HESITATING),
        ("Well...", Reading.HESITATING),
        ("I want a table for.", Reading.HESITATING),
        ("Let me see.", Reading.HESITATING),
        ("It is, you know,", Reading.HESITATING),
        ("Who are you talking to?", Reading.COMPLETE),
        ("呃。", Reading.HESITATING),
        ("这个嘛，", Reading.HESITATING),
        ("请帮我。", Reading.HESITATING),
        ("My number is 555 012", Reading.DICTATING),
        ("My number is five five five", Reading.DICTATING),
        ("It's 0 1 7 3.", Reading.DICTATING),
        ("My phone number is 017 355 501 29.", Reading.COMPLETE),
        ("The code is 4", Reading.DICTATING),
        ("今天天气怎么样？", Reading.COMPLETE),
        ("今天天气怎么样", Reading.OPEN),
        ("我想去北京因为", Reading.HESITATING),
        ("我想去北京，然后", Reading.HESITATING),
        ("然后。", Reading.HESITATING),
        ("那个", Reading.HESITATING),
        ("我要那个", Reading.HESITATING),
        ("嗯…", Reading.HESITATING),
        ("嗯。", Reading.OPEN),
        ("我的电话是一三八", Reading.DICTATING),
        ("我的电话是138 0013", Reading.DICTATING),
        ("我的电话是13800138000。", Reading.COMPLETE),
        ("好的。", Reading.COMPLETE),
        ("It's 017.", Reading.DICTATING),
        ("It is 7:05.", Reading.COMPLETE),
        ("It weighs 0.05.", Reading.COMPLETE),
        ("Pi is 3.14.", Reading.COMPLETE),
        ("What happens if?", Reading.HESITATING),
        ("So, ah.", Reading.HESITATING),
        ("Okay, so.", Reading.HESITATING),
        ("It was, like.", Reading.HESITATING),
        ("When I was young.", Reading.LEADING),
        ("When I was young, we had no phones.", Reading.COMPLETE),
        ("When does it start?", Reading.COMPLETE),
        ("Ifs and buts.", Reading.COMPLETE),
        ("如果明天下雨", Reading.LEADING),
        ("如果明天下雨，我们就不去了。", Reading.COMPLETE),
        ("我想去北京因為。", Reading.HESITATING),
        ("如果明天下雨的話。", Reading.HESITATING),
        ("這個嗎？", Reading.COMPLETE),
        ("我的電話是138", Reading.DICTATING),
    ],
)
def test_words_say_whether_more_will_come(text: str, reading: Reading) -> None:
    assert read(text) is reading


@pytest.mark.parametrize(
    ("text", "rivals", "certainty", "reading"),
    [
        ("I need a hotel enrollment.", ("I need a hotel in Rome and.",), -0.43, Reading.HESITATING),
        ("我的電話是一三吧", ("我的電話是13吧", "我的電話是138"), -0.3, Reading.DICTATING),
        ("When we are young?", ("When we were young.",), -0.3, Reading.LEADING),
        ("It's 017.", ("It is 017 and",), -0.2, Reading.DICTATING),
        ("I was thinking", ("I was thinking.", "I was thinking..."), -0.46, Reading.HESITATING),
        ("It is 4.", ("It is for.", "It is 4 5 6"), -0.4, Reading.HESITATING),
        ("What is the weather like tomorrow?", ("what is the weather like tomorrow?",), -0.1, Reading.COMPLETE),
        ("去個嗎？", (), -1.08, Reading.DOUBTFUL),
        ("紐納克", ("紐纳克",), -0.84, Reading.DOUBTFUL),
        ("Ten of cloves.", (), -0.78, Reading.COMPLETE),
        ("So I", (), -1.34, Reading.HESITATING),
        ("", (), -1.3, Reading.EMPTY),
        ("What time is it?", (), None, Reading.COMPLETE),
    ],
)
def test_what_may_have_been_said_instead_counts_too(text: str, rivals: tuple[str, ...], certainty: float | None, reading: Reading) -> None:
    assert read_heard(text, rivals, certainty) is reading


def test_a_rival_that_wants_more_is_waited_for() -> None:
    endpointer, decisions = run("v" * 20 + "ss{0.7}" + "s" * 5)
    assert kinds(decisions) == [SpeechStarted, EndLikely]
    assert endpointer.take_text("I need a hotel enrollment.", ("I need a hotel in Rome and.",), -0.4) == []
    assert endpointer.wait_ms() == SETTINGS.longest_ms
    assert kinds(endpointer.score(0.95)) == [TurnEnded], "a sure sound and a finished text need no third witness"


def test_a_guess_of_the_recognizer_is_waited_for_where_the_sound_is_not_sure() -> None:
    endpointer, _ = run("v" * 20 + "ss{0.7}" + "s" * 12)
    assert endpointer.take_text("Newnack.", (), -1.2) == []
    assert endpointer.wait_ms() == SETTINGS.longest_ms
    assert kinds(endpointer.take_text("Newnack.", (), -0.4)) == [TurnEnded]


@pytest.mark.parametrize(
    ("score", "reading", "wait"),
    [
        (0.9, Reading.COMPLETE, 192),
        (0.9, Reading.OPEN, 192),
        (0.9, Reading.EMPTY, 192),
        (0.9, Reading.LEADING, 1120),
        (0.9, Reading.HESITATING, 1500),
        (0.9, Reading.DICTATING, 1200),
        (0.9, Reading.DOUBTFUL, 1500),
        (0.5, Reading.OPEN, 800),
        (None, Reading.EMPTY, 800),
        (None, Reading.UNREAD, 800),
        (0.9, Reading.UNREAD, 800),
        (None, Reading.COMPLETE, 560),
        (0.4, Reading.HESITATING, 1500),
        (None, Reading.HESITATING, 1500),
        (0.4, Reading.DICTATING, 1200),
        (0.05, Reading.OPEN, 1033),
        (0.05, Reading.COMPLETE, 1033),
        (0.2, Reading.COMPLETE, 560),
        (0.05, Reading.DICTATING, 1500),
        (0.05, Reading.HESITATING, 1500),
        (0.625, Reading.OPEN, 496),
    ],
)
def test_score_and_words_move_the_wait_together(score: float | None, reading: Reading, wait: float) -> None:
    assert wait_ms(SETTINGS, score, reading) == pytest.approx(wait, abs=1)


def test_no_wait_is_outside_its_bounds_and_a_higher_score_never_waits_longer() -> None:
    for reading in Reading:
        waits = [wait_ms(SETTINGS, score / 100, reading) for score in range(101)]
        assert waits == sorted(waits, reverse=True)
        assert all(SETTINGS.sure_ms <= wait <= SETTINGS.longest_ms for wait in waits)


@pytest.mark.parametrize(
    ("text", "so_far", "in_the_end"),
    [
        ("", "wait", "dismiss"),
        ("mhm", "wait", "dismiss"),
        ("Mhm. Uh-huh.", "wait", "dismiss"),
        ("Right, I see.", "wait", "dismiss"),
        ("Right, but", "confirm", "confirm"),
        ("Stop", "confirm", "confirm"),
        ("嗯，对", "wait", "dismiss"),
        ("嗯，對。", "wait", "dismiss"),
        ("好的。", "wait", "dismiss"),
        ("嗯，对，不过", "confirm", "confirm"),
        ("等一下", "confirm", "confirm"),
    ],
)
def test_words_stop_a_reply_and_backchannels_do_not(text: str, so_far: str, in_the_end: str) -> None:
    backchannels = BargeInSettings().backchannels
    assert judge(text, is_final=False, backchannels=backchannels) == so_far
    assert judge(text, is_final=True, backchannels=backchannels) == in_the_end


SAID = "The sea covers most of our planet, and we have seen less of it than of the moon."


@pytest.mark.parametrize(
    ("heard", "is_ours"),
    [
        ("we have seen less of it than of the moon", True),
        ("we've have seen less of it then of the moon", True),
        ("of the moon", True),
        ("the moon", False),
        ("moon", False),
        ("planet", False),
        ("stop", False),
        ("what about the moon and the stars", False),
        ("is it less than the sun", False),
        ("", False),
    ],
)
def test_our_own_words_are_known_again(heard: str, is_ours: bool) -> None:
    assert is_echo(heard, SAID) is is_ours


def test_an_echo_never_stops_a_reply() -> None:
    assert judge("less of it than of the moon", is_final=False, backchannels=(), said=SAID) == "wait"
    assert judge("less of it than of the moon", is_final=True, backchannels=(), said=SAID) == "dismiss"
    assert judge("less of it than of the moon", is_final=True, backchannels=()) == "confirm"


def test_a_chinese_echo_is_compared_by_characters() -> None:
    assert is_echo("大海覆盖了地球", "大海覆盖了我们星球的大部分，也就是地球")
    assert is_echo("大海覆蓋了地球。", "大海覆盖了我们星球的大部分，也就是地球"), "also where the recognizer writes traditional characters"
    assert not is_echo("地球。", "也就是地球。"), "marks are no words"
    assert not is_echo("我不想听大海", "大海覆盖了我们星球的大部分")


@pytest.mark.parametrize(
    "sentence", ["the river, which carries much water, isn't wide; ", "大海覆盖了我们星球的大部分，也就是地球。", "word-by-word "]
)
@pytest.mark.parametrize("n_more", range(0, 12, 3))
def test_of_a_long_reply_only_what_can_be_in_the_room_is_taken_apart(sentence: str, n_more: int) -> None:
    said = sentence * 200 + "and so on and on"[:n_more]
    assert len(recent(said)) <= 1000
    newest = units(recent(said))
    assert len(newest) >= 40
    assert newest == units(said)[-len(newest) :], "no word is cut in two"
    assert recent(said[-900:]) == said[-900:]


def test_a_word_without_an_end_is_nothing_to_compare() -> None:
    assert recent("x" * 3000) == ""
    assert not is_echo("one two three", "x" * 3000)
