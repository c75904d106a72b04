"""`stretto talk --wav` against a scripted server: what is sent, what is shown, when it ends."""

from __future__ import annotations

import argparse
import asyncio
import wave
from pathlib import Path

import pytest

from gateway import talk
from gateway.events import (
    Ack,
    AppendAudio,
    AudioFrame,
    CommitInput,
    ErrorRaised,
    Heard,
    Interrupted,
    PlayoutPaused,
    ReplyDone,
    ReportPlayout,
    SegmentDecided,
    SpeechEnded,
    SpeechStarted,
    StartSession,
    Timeline,
    Transcribed,
    TurnDone,
    TurnStarted,
    UsageInfo,
)
from gateway.talk import spoken
from tests.doubles.scripted_server import FRAME_20_MS, Peer, Script, serving

RATE_HZ = 8_000
N_FRAMES = 25  # half a second
USAGE = UsageInfo(prompt_tokens=1, cached_tokens=0, output_tokens=5)


@pytest.fixture
def question(tmp_path: Path) -> Path:
    path = tmp_path / "question.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(b"".join(bytes([i, 0]) * (RATE_HZ // 50) for i in range(N_FRAMES)))
    return path


async def run(url: str, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    talk.add_arguments(parser)
    return await asyncio.to_thread(talk.run, parser.parse_args(["--url", url, *arguments]))


async def hear(peer: Peer, n: int) -> list[AppendAudio]:
    heard: list[AppendAudio] = []
    while len(heard) < n:
        event = await peer.receive()
        assert isinstance(event, AppendAudio | ReportPlayout)
        if isinstance(event, AppendAudio):
            heard.append(event)
    return heard


async def understand(peer: Peer, text: str, *, utterance: int = 1, turn: int | None = 1, started_ms: int = 40) -> None:
    await peer.send(SpeechStarted(utterance=utterance, at_ms=started_ms))
    await peer.send(SpeechEnded(utterance=utterance, at_ms=460))
    await peer.send(Transcribed(utterance=utterance, text=text, final=True, turn=turn))


async def answer(peer: Peer, text: str, turn: int = 1) -> None:
    await peer.send(TurnStarted(turn=turn, item_id=f"u{turn}"))
    await peer.send(SegmentDecided(turn=turn, index=0, text=text, cut="end"))
    await peer.send(ReplyDone(turn=turn, usage=USAGE))
    await peer.send(TurnDone(turn=turn, status="completed", timeline=Timeline()))


async def test_a_recording_is_said_at_its_pace_and_its_answer_timed_from_its_end(
    question: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[AppendAudio] = []
    took_s: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.start()
        began_s = asyncio.get_running_loop().time()
        heard.extend(await hear(peer, N_FRAMES + 5))  # the quiet behind it, too
        took_s.append(asyncio.get_running_loop().time() - began_s)
        await understand(peer, "What is the sea?")
        await answer(peer, "Water.")
        await peer.socket.wait_closed()

    async with serving(script) as server:
        assert await run(server.url, "--wav", str(question), "--text-only") == 0
    start = server.received[0]
    assert isinstance(start, StartSession)
    assert start.audio_in is not None
    assert (start.audio_in.codec, start.audio_in.rate_hz, start.turn_detection) == ("pcm16", RATE_HZ, "auto")
    assert [event.pts_ms for event in heard] == pytest.approx([20.0 * i for i in range(N_FRAMES + 5)])
    assert [event.data for event in heard[:N_FRAMES]] == [bytes([i, 0]) * 160 for i in range(N_FRAMES)]
    assert all(event.data == bytes(320) for event in heard[N_FRAMES:])
    assert took_s[0] > 0.5
    lines = capsys.readouterr().out.splitlines()
    assert "you: What is the sea?" in lines
    shown = next(line for line in lines if line.endswith("Water."))
    assert 100 < float(shown.split()[0]) < 100_000  # said until 460 ms, answered after 600


async def test_fast_is_one_utterance_sent_at_once_and_committed(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        heard = await hear(peer, 3)  # 200 ms each
        assert [event.pts_ms for event in heard] == [0, 200, 400]
        commit = await peer.receive()
        assert isinstance(commit, CommitInput)
        await peer.send(Ack(ref=commit.id))
        await understand(peer, "What is the sea?")
        await answer(peer, "Water.")
        await peer.socket.wait_closed()

    async with serving(script) as server:
        assert await run(server.url, "--wav", str(question), "--fast", "--text-only") == 0
    start = server.received[0]
    assert isinstance(start, StartSession)
    assert start.turn_detection == "push_to_talk"
    assert "Water." in capsys.readouterr().out


async def test_an_empty_commit_is_exit_code_2(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        await hear(peer, 3)
        commit = await peer.receive()
        await peer.send(ErrorRaised(code="input_empty", message="Less than 100 ms came.", retryable=False, ref=commit.id))
        await peer.socket.wait_closed()

    async with serving(script) as server:
        assert await run(server.url, "--wav", str(question), "--fast", "--text-only") == 2
    assert "Less than 100 ms came." in capsys.readouterr().err


async def test_an_interrupted_reply_is_followed_by_the_next_one(question: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def script(peer: Peer) -> None:
        await peer.start()
        await hear(peer, 10)
        await understand(peer, "What is", turn=1)
        await peer.send(TurnStarted(turn=1, item_id="u1"))
        await peer.send(SegmentDecided(turn=1, index=0, text="The sea", cut="end"))
        await peer.send(AudioFrame(turn=1, index=0, pts_ms=0, data=FRAME_20_MS))
        await hear(peer, 5)
        await peer.send(SpeechStarted(utterance=2, at_ms=200))
        await peer.send(PlayoutPaused(turn=1))
        await hear(peer, 2)
        await peer.send(Interrupted(turn=1, reason="speech"))
        await peer.send(Heard(turn=1, heard_ms=20, heard_text="The"))
        await peer.send(TurnDone(turn=1, status="interrupted", timeline=Timeline()))
        await hear(peer, N_FRAMES - 17)
        await peer.send(SpeechEnded(utterance=2, at_ms=500))
        await peer.send(Transcribed(utterance=2, text="And the moon?", final=True, turn=2))
        await answer(peer, "Stone.", turn=2)
        await peer.socket.wait_closed()

    async with serving(script) as server:
        assert await run(server.url, "--wav", str(question), "--out", str(tmp_path / "reply.wav")) == 0
    said = capsys.readouterr().out
    order = [said.index(part) for part in ("you: What is", "The sea", "(paused", "was interrupted", "you: And the moon?", "Stone.")]
    assert order == sorted(order)


async def silent(peer: Peer) -> None:
    await peer.start()
    await hear(peer, N_FRAMES)
    while True:
        await peer.receive()


async def noisy(peer: Peer) -> None:
    await peer.start()
    await hear(peer, N_FRAMES)
    await peer.send(SpeechStarted(utterance=1, at_ms=100))
    await peer.send(SpeechEnded(utterance=1, at_ms=160))  # a click: no text follows
    while True:
        await peer.receive()


async def mumbling(peer: Peer) -> None:
    await peer.start()
    await hear(peer, N_FRAMES)
    await understand(peer, "", turn=None)
    while True:
        await peer.receive()


async def mute(peer: Peer) -> None:
    await peer.start()
    await hear(peer, N_FRAMES)
    await peer.send(SpeechStarted(utterance=1, at_ms=40))
    await peer.send(SpeechEnded(utterance=1, at_ms=460))
    while True:
        await peer.receive()


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (silent, "no speech was heard"),
        (noisy, "no speech was heard"),
        (mumbling, "nothing was understood"),
        (mute, "no text of what was said"),
    ],
)
async def test_a_recording_that_leads_to_nothing_says_so(
    question: Path, script: Script, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spoken, "NOTICED_S", 0.3 if script in (silent, noisy) else 60.0)
    monkeypatch.setattr(spoken, "UNDERSTOOD_S", 60.0 if script is mumbling else 0.3)
    async with serving(script) as server:
        assert await run(server.url, "--wav", str(question), "--text-only") == 1
    assert f"{why}" in capsys.readouterr().err


async def test_a_connection_that_breaks_while_it_is_said_is_exit_code_1(question: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def vanish(peer: Peer) -> None:
        await peer.start()
        await hear(peer, 3)
        await peer.socket.close(4004, "draining")

    async def know_nothing(peer: Peer) -> None:
        await peer.start(resumed=False)
        await peer.socket.wait_closed()

    async with serving(vanish, know_nothing) as server:
        assert await run(server.url, "--wav", str(question), "--text-only") == 1
    assert "the server is stopping" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "expected one of"),
        (("Hello.", "--mic"), "expected one of"),
        (("Hello.", "--fast"), "--fast goes with --wav"),
        (("--wav", "/nonexistent.wav"), "cannot read /nonexistent.wav"),
    ],
)
async def test_what_does_not_go_together_is_exit_code_2(arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("ws://127.0.0.1:9/v1/voice", *arguments) == 2
    assert why in capsys.readouterr().err
