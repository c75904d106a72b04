"""The pure parts of the edge voice: messages, clock, hold, prosody."""

from __future__ import annotations

import random
from email.utils import formatdate

import pytest
from edge_tts.drm import generate_sec_ms_gec_v2

from engine.api import Style
from engine.tts.edge.clock import ServiceClock, token
from engine.tts.edge.hold import WordHold
from engine.tts.edge.prosody import EdgeProsody, render
from engine.tts.edge.protocol import Audio, EdgeProtocolError, Nothing, TurnEnd, Word, Words, read_binary, read_text, ssml_message


def binary(head: bytes, data: bytes) -> bytes:
    return len(head).to_bytes(2, "big") + head + data


METADATA = '{"Metadata":[{"Type":"WordBoundary","Data":{"Offset":1000000,"Duration":2500000,"text":{"Text":"a &amp; b","Length":5}}}]}'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Path:turn.start\r\n\r\n{}", Nothing()),
        ("X-RequestId:1\r\nPath:response\r\n\r\n{}", Nothing()),
        ("Path:turn.end\r\n\r\n{}", TurnEnd()),
        (f"Path:audio.metadata\r\n\r\n{METADATA}", Words((Word("a & b", 100, 350),))),
        ('Path:audio.metadata\r\n\r\n{"Metadata":[{"Type":"SessionEnd","Data":{}}]}', Words(())),
    ],
)
def test_text_messages_are_read(message: str, expected: object) -> None:
    assert read_text(message) == expected


@pytest.mark.parametrize(
    "message",
    ["", "nothing", "<html>\r\n\r\n</html>", "Path:unheard.of\r\n\r\n", "Path:audio.metadata\r\n\r\n{no", "Path:audio.metadata\r\n\r\n[]",
     'Path:audio.metadata\r\n\r\n{"Metadata":[{"Type":"WordBoundary","Data":{}}]}'],
)  # fmt: skip
def test_foreign_text_messages_are_protocol_errors(message: str) -> None:
    with pytest.raises(EdgeProtocolError):
        read_text(message)


def test_binary_messages_are_read() -> None:
    assert read_binary(binary(b"Path:audio\r\nContent-Type:audio/mpeg\r\n", b"mp3")) == Audio(b"mp3")
    assert read_binary(binary(b"Path:audio\r\n", b"")) == Nothing()
    assert read_binary(binary(b"no colon here\r\nPath:audio\r\nContent-Type:audio/mpeg", b"x")) == Audio(b"x")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00",
        b"\xff\xff123",
        binary(b"Path:video\r\n", b"x"),
        binary(b"Path:audio\r\n", b"x"),
        binary(b"Path:audio\r\nContent-Type:text/html", b"x"),
    ],
)
def test_foreign_binary_messages_are_protocol_errors(message: bytes) -> None:
    with pytest.raises(EdgeProtocolError):
        read_binary(message)


def test_markup_and_control_characters_in_a_text_stay_text() -> None:
    message = ssml_message('</prosody><break time="9s"/>\x00\x0b&\ud800', "en-US-AriaNeural", EdgeProsody())
    assert message.endswith('&lt;/prosody&gt;&lt;break time="9s"/&gt;  &amp;?</prosody></voice></speak>')


def test_a_text_that_the_service_would_cut_off_is_refused() -> None:
    with pytest.raises(ValueError, match="4096"):
        ssml_message("好" * 1366, "en-US-AriaNeural", EdgeProsody())


def test_a_skew_is_trusted_only_after_it_worked() -> None:
    clock = ServiceClock()
    assert clock.skew_after_refusal(formatdate(5000, usegmt=True), 1000.0) == 4000.0
    assert clock.skew_s == 0.0
    clock.trust(4000.0)
    assert token(1000.0, clock.skew_s) == generate_sec_ms_gec_v2(5000.0)


@pytest.mark.parametrize("date", [None, "", "yesterday", formatdate(1010, usegmt=True)])
def test_a_refusal_for_another_reason_is_not_tried_again(date: str | None) -> None:
    assert ServiceClock().skew_after_refusal(date, 1000.0) is None


def test_prosody_is_rendered_with_signs() -> None:
    assert render(Style(rate=1.1, pitch_st=-12, volume=3.0), 200, True) == EdgeProsody("+10%", "-100Hz", "+100%")
    assert render(Style(), 200, True) == EdgeProsody()
    assert render(Style(volume=0.5), 200, False).volume == "+0%"


RATE = 1000  # two bytes a millisecond: audio below is counted in milliseconds


def pcm(ms: int) -> bytes:
    return b"\x01\x00" * ms


def test_audio_is_let_out_at_word_ends() -> None:
    hold = WordHold("Hello big world.", RATE)
    hold.on_words([Word("Hello", 100, 400)])
    hold.on_pcm(pcm(50))
    assert len(hold.take()[0]) == 100  # the lead before the word
    hold.on_pcm(pcm(200))
    assert len(hold.take()[0]) == 100  # up to the word's start
    hold.on_pcm(pcm(200))
    sound, words = hold.take()
    assert (len(sound), [word.end for word in words], hold.spoken) == (600, [5], 5)
    hold.on_words([Word("big", 500, 700), Word("world", 700, 900)])
    hold.on_pcm(pcm(350))
    assert (len(hold.take()[0]), hold.spoken) == (600, 9)
    hold.on_pcm(pcm(300))
    assert (len(hold.take()[0]), hold.spoken) == (800, 15)  # nothing is said after the last word: the pause goes too


def test_without_word_times_nothing_is_held() -> None:
    hold = WordHold("Hello", RATE)
    hold.on_pcm(pcm(30))
    assert (len(hold.take()[0]), hold.spoken) == (60, None)


def test_wrong_word_times_do_not_hold_audio_for_ever() -> None:
    hold = WordHold("Hello world", RATE)
    hold.on_words([Word("Hello", 0, 3_600_000)])
    hold.on_pcm(pcm(1900))
    assert hold.take()[0] == b""
    hold.on_pcm(pcm(200))
    assert len(hold.take()[0]) == 4200


def test_words_that_the_service_writes_otherwise_keep_the_place() -> None:
    hold = WordHold("It costs $5 today", RATE)
    hold.on_words([Word("it", 0, 1), Word("costs", 1, 2), Word("five", 2, 3), Word("today", 3, 4)])
    hold.on_pcm(pcm(10))
    assert [(w.start, w.end) for w in hold.take()[1]] == [(0, 2), (3, 8), (9, 10), (12, 17)]


def test_all_audio_comes_out_whatever_the_order() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        hold, out, told = WordHold("a b c d e f", RATE), b"", 0
        events: list[object] = [Word(w, 40 * i, 40 * i + 30) for i, w in enumerate("abcdef")]
        at = 0
        for _ in range(rng.randint(1, 20)):
            at = rng.randint(at, len(events))
            events.insert(at, rng.randint(1, 60))
        total = 0
        for event in events:
            if isinstance(event, Word):
                hold.on_words([event])
            else:
                assert isinstance(event, int)
                hold.on_pcm(pcm(event))
                total += event
            sound, words = hold.take()
            out += sound
            told += len(words)
        sound, words = hold.take_all()
        assert out + sound == pcm(total)
        assert told + len(words) == 6
