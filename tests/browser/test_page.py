"""The page in a real browser against a real gateway (scripted engines): what is heard, lit, interrupted and taken up again.

`artifacts/page*.png` show what was seen, at two widths and in both color schemes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.fake import speech_ms
from tests.browser import chrome
from tests.browser.relay import Relay
from tests.browser.serving import REPLY, gateway

LONG_REPLY = " ".join([REPLY] * 5)
ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "artifacts"
READY = "window.stretto?.session.state === 'open'"
TOLD = "document.querySelector('#notice').hidden ? '' : document.querySelector('#notice p').textContent"
EXCHANGE = "stretto.exchanges.at(-1)"
PLAYED = "(turn => stretto.player.position(turn))"
CAPTION = "document.querySelector('.exchange:last-child .segments').textContent"
UNLIT = "document.querySelectorAll('.exchange:last-child .segment:not([data-state=spoken])').length"
LIT = "document.querySelectorAll('.exchange:last-child .segment[data-state]:not([data-state=waiting])').length"


@pytest.fixture(scope="module")
def binary() -> str:
    found = chrome.find()
    if found is None:
        loud = "NO BROWSER: chromium is missing, so the page was NOT tested (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(loud)
        pytest.skip(loud)
    return found


@pytest.fixture
def page(binary: str) -> Iterator[chrome.Page]:
    with chrome.chromium(binary) as tab:
        tab.look()
        yield tab


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with gateway() as number:
        yield number


@pytest.fixture(scope="module")
def talkative() -> Iterator[int]:
    """One that speaks for half a minute: whoever interrupts it comes in time."""
    with gateway(STRETTO_FAKE__REPLY=LONG_REPLY, STRETTO_TURN__MAX_TOKENS="900") as number:
        yield number


def open_page(page: chrome.Page, port: int) -> None:
    page.open(f"http://127.0.0.1:{port}/")
    page.wait_for(READY)


def ask(page: chrome.Page, text: str) -> None:
    page.evaluate("document.querySelector('#text').focus()")
    page.type(text)
    page.press("Enter", 13)


def test_a_reply_is_heard_to_its_end_and_its_caption_lights_up(page: chrome.Page, port: int) -> None:
    open_page(page, port)
    ask(page, "Tell me something about the sea.")
    # Sound passes through the graph, not only counters; all seen at one moment, for the reply goes on.
    seen = f"{PLAYED}(1) > 500 && stretto.player.level() > 0.05 && [{LIT}, {UNLIT}, document.querySelector('#floor').textContent]"
    lit, unlit, floor = page.wait_for(seen)
    assert lit >= 1
    assert unlit >= 1
    assert "is speaking" in floor
    page.wait_for(f"{EXCHANGE}.is_over")
    assert page.evaluate(CAPTION) == REPLY
    assert page.evaluate(UNLIT) == 0
    assert page.evaluate("document.querySelector('#floor').textContent") == "Your turn"
    audio_ms = page.evaluate(f"{EXCHANGE}.caption.segments.reduce((sum, segment) => sum + segment.audio_ms, 0)")
    assert audio_ms >= speech_ms(REPLY) * 0.9
    assert page.evaluate(f"{PLAYED}(1)") == pytest.approx(audio_ms, abs=1)
    counters = page.evaluate("stretto.player.counters")
    assert counters["frames_played"] >= audio_ms / 100
    assert (counters["frames_dropped"], counters["queued"]) == (0, 0)
    assert page.complaints == []


def test_the_strip_shows_every_stage_in_order(page: chrome.Page, port: int) -> None:
    open_page(page, port)
    ask(page, "Tell me something about the sea.")
    page.wait_for(f"{EXCHANGE}.marks.sound")
    marks = page.evaluate(f"{EXCHANGE}.marks")
    assert 0 < marks["ttft"] <= marks["segment"] <= marks["audio"] <= marks["sound"]
    shown = page.evaluate("[...document.querySelectorAll('.stave .value')].map(value => value.textContent)")
    assert shown == [f"{int(marks[stage] + 0.5)} ms" for stage in ("ttft", "segment", "audio", "sound")]
    assert page.evaluate("document.querySelector('.summary').textContent").startswith("First sound after ")


def test_a_second_text_empties_the_player_and_is_answered(page: chrome.Page, talkative: int) -> None:
    open_page(page, talkative)
    ask(page, "Tell me something about the sea.")
    page.wait_for(f"{PLAYED}(1) > 800")
    ask(page, "And the moon?")
    page.wait_for("stretto.exchanges[1]?.marks.sound !== undefined")
    heard_ms = page.evaluate(f"{PLAYED}(1)")
    heard_text = page.wait_for("stretto.exchanges[0].heard_text")
    assert LONG_REPLY.startswith(heard_text)
    assert len(heard_text) < len(LONG_REPLY)
    assert page.evaluate("document.querySelector('.exchange:first-child .segments del').textContent")
    counters = page.evaluate("stretto.player.counters")
    assert counters["frames_dropped"] > 0
    page.wait_for(f"{PLAYED}(2) > 800")
    assert page.evaluate(f"{PLAYED}(1)") == heard_ms
    assert heard_ms < speech_ms(LONG_REPLY) - 500
    assert page.complaints == []


def test_stop_falls_silent_and_says_what_was_not_heard(page: chrome.Page, talkative: int) -> None:
    open_page(page, talkative)
    ask(page, "Tell me something about the sea.")
    page.wait_for(f"{PLAYED}(1) > 500")
    page.click("#stop")
    page.wait_for(f"{EXCHANGE}.is_over")
    assert page.evaluate("stretto.player.counters.queued") == 0
    assert page.evaluate("document.querySelector('#stop').hidden")
    assert page.evaluate("document.querySelector('.segments del').textContent")
    assert page.evaluate("document.querySelector('#floor').textContent") == "Your turn"


def test_a_cut_connection_is_taken_up_again_and_nothing_is_missed(page: chrome.Page, port: int) -> None:
    with Relay(port) as relay:
        open_page(page, relay.port)
        session_id = page.evaluate("stretto.session.id")
        ask(page, "Tell me something about the sea.")
        page.wait_for(f"{PLAYED}(1) > 500")
        n_connections = relay.n_connections
        relay.cut()
        page.wait_for("document.querySelector('#connection').textContent === 'Reconnecting'")
        relay.mend()
        page.wait_for(READY)
        assert relay.n_connections > n_connections
        page.wait_for(f"{EXCHANGE}.is_over")
        assert page.evaluate("stretto.session.id") == session_id
        assert page.evaluate(CAPTION) == REPLY
        audio_ms = page.evaluate(f"{EXCHANGE}.caption.segments.reduce((sum, segment) => sum + segment.audio_ms, 0)")
        assert page.evaluate(f"{PLAYED}(1)") == pytest.approx(audio_ms, abs=1)


def test_a_conversation_goes_on_with_another_server(page: chrome.Page, port: int) -> None:
    with Relay(port) as relay, gateway() as other_port:
        open_page(page, relay.port)
        session_id = page.evaluate("stretto.session.id")
        ask(page, "Tell me something about the sea.")
        page.wait_for(f"{PLAYED}(1) > 500")
        relay.cut()
        relay.upstream_port = other_port
        relay.mend()
        page.wait_for(f"stretto.session.state === 'open' && stretto.session.id !== '{session_id}'")
        assert "away too long" in page.evaluate(TOLD)
        ask(page, "Are you still there?")
        page.wait_for(f"stretto.exchanges.length === 2 && {EXCHANGE}.marks.sound !== undefined")
        assert page.evaluate(TOLD) == ""


def test_a_key_is_asked_for_only_by_a_server_that_has_one(page: chrome.Page, port: int) -> None:
    open_page(page, port)
    assert page.evaluate("document.querySelector('#key-form').hidden")
    with gateway(STRETTO_KEYS="open-sesame") as keyed_port:
        page.open(f"http://127.0.0.1:{keyed_port}/")
        page.wait_for("window.stretto && !document.querySelector('#key-form').hidden")
        assert page.evaluate(TOLD) == "This server asks for a key."
        page.type("barley")
        page.press("Enter", 13)
        page.wait_for(f"({TOLD}) === 'The server does not accept this key.'")
        page.evaluate("document.querySelector('#key').value = ''")
        page.type("open-sesame")
        page.press("Enter", 13)
        page.wait_for(READY)
        assert page.evaluate("document.querySelector('#key-form').hidden")
        ask(page, "Hello?")
        page.wait_for(f"{EXCHANGE}.marks.sound !== undefined")


def test_the_chosen_voice_speaks_from_the_next_turn(page: chrome.Page, port: int) -> None:
    open_page(page, port)
    voices = page.evaluate("[...document.querySelectorAll('#voice option')].map(option => option.value)")
    assert len(voices) >= 2
    page.evaluate(
        f"(voice => {{ voice.value = '{voices[1]}'; voice.dispatchEvent(new Event('change')) }})(document.querySelector('#voice'))"
    )
    ask(page, "Who are you?")
    page.wait_for(f"{EXCHANGE}.voice")
    assert page.evaluate(f"{EXCHANGE}.voice") == voices[1]


def test_a_phone_shows_everything_in_its_width_with_room_for_fingers(page: chrome.Page, port: int) -> None:
    page.look(width=390, height=844, is_phone=True)
    open_page(page, port)
    small = "[...document.querySelectorAll('button, select, summary, textarea')].filter(e => e.offsetParent && e.offsetHeight < 44).length"
    assert page.evaluate(small) == 0
    ask(page, "Tell me something about the sea.")
    page.wait_for(f"{PLAYED}(1) > 500")
    assert page.evaluate(small) == 0
    assert page.evaluate("innerWidth") == 390
    assert page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")


def test_pictures_of_the_page(page: chrome.Page, port: int) -> None:
    open_page(page, port)
    page.screenshot(PICTURES / "page-welcome.png")
    ask(page, "Tell me something about the sea.")
    page.wait_for(f"{PLAYED}(1) > 900")
    ask(page, "And how deep is it?")
    page.wait_for(f"{PLAYED}(2) > 900")
    page.screenshot(PICTURES / "page.png")
    page.look(is_dark=True)
    page.screenshot(PICTURES / "page-dark.png")
    page.look(width=390, height=844, is_phone=True)
    page.screenshot(PICTURES / "page-phone.png")
    page.look(width=390, height=844, is_phone=True, is_dark=True)
    page.screenshot(PICTURES / "page-phone-dark.png")
    assert all(path.stat().st_size > 10_000 for path in PICTURES.glob("page*.png"))
