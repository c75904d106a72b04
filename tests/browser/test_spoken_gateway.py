"""Spoken conversations in a real browser against a real gateway: with scripted ears, and with Silero, smart-turn and Whisper."""

from __future__ import annotations

import json
import os
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.api import EngineSetupError
from engine.build_listening import missing_packages
from engine.weights import SILERO, SMART_TURN, WHISPER_BASE, fetch
from tests.browser import chrome
from tests.browser.hummed_speech import hum
from tests.browser.serving import gateway
from tests.browser.test_talking import FLOOR, PICTURES, PLAYED, QUESTION, SECOND, WATCH, assert_in_order

SCRIPTED = {"STRETTO_ASR__ENGINE": "fake", "STRETTO_LISTEN__VAD": "fake", "STRETTO_LISTEN__END_OF_TURN": "fake"}
LONG_REPLY = "The sea is wide, and it is deep, and nobody has seen all of it. " * 8
SPOKEN = Path("/usr/share/pocketsphinx/test/data")  # people who read aloud, 16 kHz (Debian's pocketsphinx-testdata)
FIRST_SAID, NEXT_SAID = "cards/005.wav", "librivox/sense_and_sensibility_01_austen_64kb-0870.wav"


def miss(loud: str) -> None:
    """Skip, but never silently, and not where everything has to run."""
    if os.environ.get("CI") == "true":
        pytest.fail(loud)
    pytest.skip(loud)


@pytest.fixture(scope="module")
def binary() -> str:
    found = chrome.find()
    if found is None:
        miss("NO BROWSER: chromium is missing, so spoken conversations were NOT tested (apt-get install chromium)")
    assert found is not None, "a missing one has ended the test"
    return found


@contextmanager
def talking(binary: str, sound: Path, **environment: str) -> Iterator[chrome.Page]:
    """The page on a gateway whose microphone hears `sound` once it is opened."""
    flags = (flag.format(path=sound) for flag in chrome.MICROPHONE)
    with gateway(**{"STRETTO_FAKE__REPLY": LONG_REPLY, **environment}) as port, chrome.chromium(binary, *flags) as page:
        page.look()
        page.open(f"http://127.0.0.1:{port}/")
        page.wait_for("window.stretto?.session.state === 'open'")
        page.evaluate(WATCH)
        yield page


def test_a_spoken_question_is_answered_and_a_second_one_takes_the_floor(binary: str, tmp_path: Path) -> None:
    sound = hum(tmp_path / "microphone.wav", [(0.6, 1.8), (5.0, 6.6)])
    with talking(binary, sound, **SCRIPTED, STRETTO_FAKE__HEARD=json.dumps([QUESTION, SECOND])) as page:
        page.click("#talk")
        page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined")
        page.wait_for(f"{PLAYED}(2) > 500")
        heard_ms = page.evaluate(f"{PLAYED}(1)")
        assert heard_ms > 0
        assert page.evaluate("stretto.player.counters.frames_dropped") > 0
        assert page.evaluate("stretto.exchanges.map(exchange => exchange.text)") == [QUESTION, SECOND]
        heard_text = page.evaluate("stretto.exchanges[0].heard_text")
        assert heard_text
        assert LONG_REPLY.startswith(heard_text)
        floors = page.evaluate("seen.floor")
        assert_in_order(floors, "Listening", "Hearing you", "Thinking", "is speaking", "Paused", "Hearing you", "Thinking", "is speaking")
        assert page.evaluate("seen.hearing.length") >= 2
        assert page.complaints == []


def test_a_speaker_who_goes_on_is_answered_as_a_whole(binary: str, tmp_path: Path) -> None:
    sound = hum(tmp_path / "microphone.wav", [(0.6, 1.6), (2.7, 4.0)])  # goes on half a second after the reply began
    with talking(binary, sound, **SCRIPTED, STRETTO_FAKE__HEARD=json.dumps(["Book a table", "for two, please."])) as page:
        page.click("#talk")
        page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined")
        first, second = page.evaluate("stretto.exchanges.slice(0, 2).map(exchange => [exchange.text, exchange.isSuperseded])")
        assert first == ["Book a table", True]
        assert second == ["Book a table for two, please.", False]
        assert "You went on speaking" in page.evaluate("document.querySelector('.exchange:first-child .note').textContent")
        assert page.evaluate("stretto.exchanges[0].history") == []
        page.screenshot(PICTURES / "page-talking-merged.png")
        assert page.complaints == []


def test_a_held_button_is_answered_after_it_is_let_go(binary: str, tmp_path: Path) -> None:
    sound = hum(tmp_path / "microphone.wav", [(0.3, 1.0), (2.4, 3.0)])  # a pause that would end a turn
    with talking(binary, sound, **SCRIPTED, STRETTO_FAKE__HEARD=json.dumps([QUESTION, SECOND])) as page:
        page.mouse("mousePressed", "#talk")
        page.wait_for("stretto.talking.mode === 'held'")
        page.evaluate("new Promise(resolve => setTimeout(resolve, 3500))")
        assert page.evaluate("stretto.exchanges.length") == 0
        page.mouse("mouseReleased", "#talk")
        page.wait_for("stretto.exchanges[0]?.marks.sound !== undefined")
        assert page.evaluate("stretto.exchanges[0].text") == QUESTION
        page.mouse("mousePressed", "#talk")  # over the reply: it stops at once
        page.wait_for("stretto.exchanges[0].is_over")
        page.evaluate("new Promise(resolve => setTimeout(resolve, 500))")
        page.mouse("mouseReleased", "#talk")
        page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined")
        assert page.evaluate("stretto.exchanges[1].text") == SECOND
        assert page.evaluate("stretto.exchanges[0].heard_text.length") < len(LONG_REPLY)
        page.click("#talk")  # a tap: hands-free goes on with the same session
        page.wait_for("stretto.talking.mode === 'free'")
        assert page.complaints == []


def test_a_gateway_without_ears_offers_no_microphone(binary: str, tmp_path: Path) -> None:
    with talking(binary, hum(tmp_path / "microphone.wav", []), STRETTO_ASR__ENGINE="off") as page:
        assert page.evaluate("document.querySelector('#talk').hidden")
        assert page.evaluate("stretto.session.audio_in") is None


def read_aloud(path: Path, *takes: tuple[float, str], length_s: float = 60.0) -> Path:
    """A WAV with each recording at its time, in seconds, and silence around."""
    samples = bytearray(2 * 16_000 * int(length_s))
    for start_s, name in takes:
        with wave.open(str(SPOKEN / name)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
            speech = file.readframes(file.getnframes())
        start = 2 * int(16_000 * start_s)
        samples[start : start + len(speech)] = speech
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(samples))
    return path


@pytest.mark.timeout(240)
def test_people_who_speak_are_understood_and_interrupt(binary: str, tmp_path: Path) -> None:
    if missing := missing_packages():
        miss(f"NO EARS: {missing[0]} is missing, so real speech was NOT tested (pip install 'stretto[asr]')")
    if not SPOKEN.is_dir():
        miss("NO RECORDINGS: real speech was NOT tested (apt-get install pocketsphinx-testdata)")
    cache = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser()
    try:
        for weights in (WHISPER_BASE, SILERO, SMART_TURN):
            fetch(weights, cache, print)
    except EngineSetupError as error:
        miss(f"NO WEIGHTS: real speech was NOT tested ({error})")
    sound = read_aloud(tmp_path / "microphone.wav", (1.0, FIRST_SAID), (16.0, NEXT_SAID))
    with talking(binary, sound, STRETTO_ASR__ENGINE="whisper", STRETTO_LANGUAGE="en") as page:
        page.click("#talk")
        page.wait_for("stretto.exchanges[0]?.marks.sound !== undefined")
        page.screenshot(PICTURES / "page-talking-whisper.png")
        page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined", timeout_s=90)
        first, second = page.evaluate("stretto.exchanges.slice(0, 2).map(exchange => exchange.text.toLowerCase())")
        assert "spades" in first  # eight of spades, four of clubs, seven of hearts
        assert "had then leisure to consider" in second
        assert page.evaluate("stretto.exchanges[0].heard_text.length") < len(LONG_REPLY)
        assert page.evaluate("stretto.player.counters.frames_dropped") > 0
        assert_in_order(page.evaluate("seen.floor"), "Listening", "Hearing you", "is speaking", "Paused", "is speaking")
        print("since the end of speech, ms:", page.evaluate("stretto.exchanges.map(exchange => exchange.marks)"))
        assert page.evaluate(FLOOR)
        assert page.complaints == []
