"""The page's microphone in a real browser, against a double that listens: what leaves the page, what is seen, who has the floor.

`artifacts/page-talking*.png` show what was seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.events import CommitInput, Interrupted, Mute, PlayoutPaused, PlayoutResumed, UpdateSession
from tests.browser import chrome
from tests.browser.hummed_speech import hum
from tests.browser.listening_double import ANSWER, ListeningDouble, listening

PICTURES = Path(__file__).parents[2] / "artifacts"
QUESTION, SECOND = "Why is the sky blue?", "And at night?"
ONE = [(0.6, 1.8)]
TWO = [(0.6, 1.8), (4.2, 5.4)]
FLOOR = "document.querySelector('#floor').textContent"
TOLD = "document.querySelector('#notice').hidden ? '' : document.querySelector('#notice p').textContent"
TALK = "document.querySelector('#talk')"
PLAYED = "(turn => stretto.player.position(turn))"
# What was seen in turn, each once: the line of the floor, and the words that were shown while they were spoken.
WATCH = """(() => {
  window.seen = {floor: [], hearing: []};
  const note = () => {
    const line = document.querySelector('#floor').textContent;
    const words = document.querySelector('#hearing').hidden ? '' : document.querySelector('#hearing').lastElementChild.textContent;
    if (line && seen.floor.at(-1) !== line) seen.floor.push(line);
    if (words && seen.hearing.at(-1) !== words) seen.hearing.push(words);
  };
  note();
  const everything = {subtree: true, childList: true, characterData: true, attributes: true};
  new MutationObserver(note).observe(document.querySelector('.dock'), everything);
})()"""
Start = Callable[..., tuple[chrome.Page, ListeningDouble]]


@pytest.fixture(scope="module")
def binary() -> str:
    found = chrome.find()
    if found is None:
        loud = "NO BROWSER: chromium is missing, so the microphone was NOT tested (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(loud)
        pytest.skip(loud)
    return found


@pytest.fixture
def start(binary: str, tmp_path: Path) -> Iterator[Start]:
    """Opens the page on a double: what the microphone hears, what it means to the double, and the browser's flags if others."""
    with ExitStack() as stack:

        def opened(
            spans_s: list[tuple[float, float]],
            meanings: list[str],
            *,
            reply_ms: int = 6000,
            is_deaf: bool = False,
            flags: tuple[str, ...] = chrome.MICROPHONE,
        ) -> tuple[chrome.Page, ListeningDouble]:
            path = hum(tmp_path / "microphone.wav", spans_s)
            double = stack.enter_context(listening(meanings, reply_ms=reply_ms, is_deaf=is_deaf))
            page = stack.enter_context(chrome.chromium(binary, *(flag.format(path=path) for flag in flags)))
            page.look()
            page.open(f"http://127.0.0.1:{double.port}/")
            page.wait_for("window.stretto?.session.state === 'open'")
            page.evaluate(WATCH)
            return page, double

        yield opened


def wait_for_loud(double: ListeningDouble, n_frames: int = 20, timeout_s: float = chrome.PATIENCE_S) -> None:
    """Until so much speech has arrived."""
    ends_at = time.monotonic() + timeout_s
    while sum(arrival.loudness > 0.02 for arrival in double.arrivals) < n_frames:
        assert time.monotonic() < ends_at, f"{len(double.arrivals)} frames came, hardly any loud"
        time.sleep(0.03)


def wait_for_more(double: ListeningDouble, n_arrived: int) -> None:
    """Until another frame has arrived."""
    ends_at = time.monotonic() + chrome.PATIENCE_S
    while len(double.arrivals) <= n_arrived:
        assert time.monotonic() < ends_at, "no further frame came"
        time.sleep(0.03)


def wait_for_silence(page: chrome.Page, double: ListeningDouble) -> None:
    """Until nothing has left the page for half a second: what was on its way is there by then. It must come in a few of them."""
    for _ in range(6):
        n_arrived = len(double.arrivals)
        page.evaluate("new Promise(resolve => setTimeout(resolve, 500))")
        if len(double.arrivals) == n_arrived:
            return
    pytest.fail("the page went on sending")


def assert_in_order(seen: list[str], *expected: str) -> None:
    """Each of `expected` was seen, in that order."""
    rest = iter(seen)
    assert all(any(word in line for line in rest) for word in expected), f"{expected} not in order in {seen}"


def test_a_spoken_question_is_sent_as_it_is_heard_and_answered_aloud(start: Start) -> None:
    page, double = start(ONE, [QUESTION], reply_ms=2000)
    page.click("#talk")
    page.wait_for(f"{PLAYED}(1) > 300")
    assert "Amy" not in page.evaluate(TOLD)
    page.wait_for("stretto.exchanges[0].is_over")
    assert {arrival.n_bytes for arrival in double.arrivals} == {640}  # 20 ms at 16 kHz
    times = [arrival.pts_ms for arrival in double.arrivals]
    assert times == pytest.approx([times[0] + 20 * i for i in range(len(times))], abs=1e-6)
    loud = [arrival.pts_ms for arrival in double.arrivals if arrival.loudness > 0.02]
    assert 900 <= loud[-1] - loud[0] <= 1400
    assert_in_order(page.evaluate("seen.floor"), "Opening the microphone", "Listening", "Hearing you", "is speaking", "Listening")
    words = page.evaluate("seen.hearing")
    assert len(words) >= 3
    assert all(QUESTION.startswith(text) for text in words)
    assert page.evaluate("document.querySelector('.user-text').textContent") == QUESTION
    assert page.evaluate("document.querySelector('.segments').textContent") == ANSWER
    assert page.evaluate("document.querySelector('#hearing').hidden")
    marks = page.evaluate("stretto.exchanges[0].marks")
    assert 300 < marks["audio"] <= marks["sound"]  # since the end of speech, the double's 400 ms of silence included
    assert page.complaints == []


def test_speech_over_a_reply_holds_it_and_words_empty_the_player(start: Start) -> None:
    page, double = start(TWO, [QUESTION, SECOND])
    page.click("#talk")
    page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined")
    heard_ms = page.evaluate(f"{PLAYED}(1)")
    assert 500 < heard_ms < 5000
    page.wait_for(f"{PLAYED}(2) > 500")
    assert page.evaluate(f"{PLAYED}(1)") == heard_ms
    assert page.evaluate("stretto.player.counters.frames_dropped") > 0
    assert_in_order(page.evaluate("seen.floor"), "is speaking", "Paused, hearing you", "Hearing you", "is speaking")
    said = [type(event) for event in double.sent]
    assert said.index(PlayoutPaused) < said.index(Interrupted)
    assert page.evaluate("document.querySelector('.exchange:first-child .segments del').textContent")
    asked = page.evaluate("[...document.querySelectorAll('.user-text')].map(words => words.textContent)")
    assert asked == [QUESTION, SECOND]
    assert page.complaints == []


def test_a_cough_holds_the_reply_and_lets_it_go_on(start: Start) -> None:
    page, double = start(TWO, [QUESTION, ""], reply_ms=4000)
    page.click("#talk")
    page.wait_for("stretto.exchanges[0]?.is_over")
    assert PlayoutResumed in map(type, double.sent)
    assert Interrupted not in map(type, double.sent)
    assert_in_order(page.evaluate("seen.floor"), "is speaking", "Paused", "is speaking", "Listening")
    assert page.evaluate(f"{PLAYED}(1)") == pytest.approx(4000, abs=1)
    assert page.evaluate("stretto.exchanges.length") == 1


def test_while_the_button_is_held_it_is_heard_and_letting_go_sends_it(start: Start) -> None:
    page, double = start(ONE, [QUESTION])
    page.mouse("mousePressed", "#talk")
    page.wait_for(f"{FLOOR}.startsWith('Hearing you. Let go')")
    wait_for_loud(double)
    page.mouse("mouseReleased", "#talk")
    page.wait_for("stretto.exchanges[0]?.marks.sound !== undefined")
    assert [type(event) for event in double.received if isinstance(event, UpdateSession | CommitInput)] == [UpdateSession, CommitInput]
    assert page.evaluate("document.querySelector('.user-text').textContent") == QUESTION
    assert page.evaluate(f"{TALK}.dataset.mode") == "off"
    n_arrived = len(double.arrivals)
    page.wait_for(f"{PLAYED}(1) > 1000")
    assert len(double.arrivals) == n_arrived  # the device is open still, and nothing of it leaves the page


def test_the_space_bar_talks_while_it_is_down_and_types_in_a_message(start: Start) -> None:
    page, double = start(ONE, [QUESTION])
    page.hold_key(" ", 32)
    wait_for_loud(double)
    assert page.evaluate("document.querySelector('#text').value") == ""
    page.release_key(" ", 32)
    page.wait_for("stretto.exchanges[0]?.marks.sound !== undefined")
    assert len(double.of_type(CommitInput)) == 1
    page.type("Well")
    n_arrived = len(double.arrivals)
    page.hold_key(" ", 32)
    page.release_key(" ", 32)
    assert page.evaluate(f"{TALK}.dataset.mode") == "off"
    assert len(double.arrivals) == n_arrived


def test_a_short_touch_of_the_space_bar_is_taken_back(start: Start) -> None:
    page, double = start([], [])
    page.hold_key(" ", 32)
    page.release_key(" ", 32)
    page.wait_for(f"{TALK}.dataset.mode === 'off'")
    page.evaluate("new Promise(resolve => setTimeout(resolve, 500))")
    assert double.of_type(CommitInput) == []
    assert double.arrivals == []
    assert page.evaluate("document.querySelector('#text').value") == ""


def test_muted_nothing_leaves_the_page(start: Start) -> None:
    page, double = start([(0.2, 20.0)], [])
    page.click("#talk")
    page.wait_for(f"{FLOOR} === 'Hearing you'")
    page.click("#mute")
    page.wait_for("stretto.talking.isMuted")
    page.wait_for("!stretto.talking.isOn")
    wait_for_silence(page, double)
    assert page.evaluate("document.querySelector('#mute').textContent") == "Unmute"
    n_arrived = len(double.arrivals)
    page.click("#mute")
    wait_for_more(double, n_arrived)
    assert [event.on for event in double.of_type(Mute) if isinstance(event, Mute)] == [True, False]


def test_hands_free_ends_with_a_second_press(start: Start) -> None:
    page, double = start([], [])
    page.click("#talk")
    page.wait_for(f"{FLOOR} === 'Listening'")
    assert page.evaluate(f"{TALK}.getAttribute('aria-pressed')") == "true"
    page.click("#talk")
    page.wait_for(f"{FLOOR} === 'Your turn'")
    assert page.evaluate("stretto.talking.microphone.state") == "closed"
    wait_for_silence(page, double)


def test_a_person_who_refuses_the_microphone_is_told_how_to_allow_it(start: Start) -> None:
    page, _ = start([], [], flags=("--use-fake-device-for-media-stream", "--deny-permission-prompts"))
    page.click("#talk")
    assert page.wait_for(TOLD).startswith("This page may not use the microphone.")
    assert page.evaluate(f"{TALK}.dataset.mode") == "off"
    assert page.evaluate(FLOOR) == "Your turn"


def test_where_no_microphone_is_a_person_is_told(start: Start) -> None:
    page, _ = start([], [])
    page.evaluate("navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotFoundError')); undefined")
    page.click("#talk")
    assert page.wait_for(TOLD).startswith("There is no microphone here.")
    assert page.evaluate(f"{TALK}.dataset.mode") == "off"


def test_a_microphone_that_is_pulled_out_is_followed_by_the_next_one(start: Start) -> None:
    page, double = start([(0.2, 20.0)], [])
    page.evaluate(
        "(ask => { navigator.mediaDevices.getUserMedia = async (...all) => (window.stream = await ask(...all)) })"
        "(navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices))"
    )
    page.click("#talk")
    page.wait_for("stretto.talking.isOn && Boolean(window.stream)")
    page.evaluate("stream.getAudioTracks()[0].dispatchEvent(new Event('ended'))")
    assert "The microphone is another one now" in page.wait_for(TOLD)
    page.wait_for("stretto.talking.isOn")
    wait_for_more(double, len(double.arrivals))
    times = [arrival.pts_ms for arrival in double.arrivals]
    assert times == sorted(times)


def test_a_server_that_does_not_listen_gets_no_button(start: Start) -> None:
    page, _ = start([], [], is_deaf=True)
    assert page.evaluate(f"{TALK}.hidden && document.querySelector('#how-to-talk').hidden")
    page.hold_key(" ", 32)
    page.release_key(" ", 32)
    assert page.evaluate("stretto.talking.microphone.state") == "closed"


def test_pictures_of_a_spoken_conversation(start: Start) -> None:
    page, _ = start([(0.6, 1.8), (4.6, 9.0), (11.0, 30.0)], [QUESTION, "And at night, when it is dark?", "Tell me"])
    page.screenshot(PICTURES / "page-talking-welcome.png")
    page.click("#talk")
    page.wait_for("seen.hearing.length >= 3")
    page.screenshot(PICTURES / "page-talking-hearing.png")
    page.wait_for(f"{FLOOR}.startsWith('Paused')")
    page.screenshot(PICTURES / "page-talking-paused.png")
    page.wait_for(f"{PLAYED}(2) > 300")
    page.look(width=390, height=844, is_phone=True)
    page.screenshot(PICTURES / "page-talking-phone.png")
    small = "[...document.querySelectorAll('button, select, summary, textarea')].filter(e => e.offsetParent && e.offsetHeight < 44).length"
    assert page.evaluate(small) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= 390")
    page.look(width=390, height=844, is_phone=True, is_dark=True)
    page.wait_for(f"{FLOOR} === 'Hearing you'")
    page.screenshot(PICTURES / "page-talking-phone-dark.png")
