"""`stretto talk` against a scripted server: what a newcomer sees, and the exit codes."""

from __future__ import annotations

import argparse
import asyncio
import sys
import wave
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs

from gateway import talk
from gateway.events import (
    AudioFrame,
    ErrorRaised,
    ReplyDone,
    SegmentDecided,
    SegmentDone,
    SendText,
    SessionUpdated,
    StartSession,
    Timeline,
    TurnDone,
    TurnStarted,
    UsageInfo,
    VoiceInfo,
)
from gateway.talk import sound
from gateway.talk.transcript import Transcript
from tests.doubles.scripted_server import FRAME_20_MS, Peer, Script, ready, reply_with_two_segments, serving


async def run(url: str, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    talk.add_arguments(parser)
    return await asyncio.to_thread(talk.run, parser.parse_args(["Hello.", "--url", url, *arguments]))


async def test_segments_are_printed_with_their_times_and_the_sound_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "reply.wav"
    async with serving(reply_with_two_segments) as server:
        assert await run(server.url, "--out", str(out)) == 0
    lines = capsys.readouterr().out.splitlines()
    first = next(line for line in lines if line.endswith("The sea is wide."))
    assert first.split()[1] == "ms"
    assert any(line.endswith("ms  It is deep.") for line in lines)
    assert lines[-1].startswith("first segment ")
    assert f"written to {out}; 8 tokens" in lines[-1]
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnchannels(), file.readframes(9999)) == (24_000, 1, FRAME_20_MS * 2)


def text_reply(*, status: str, error: ErrorRaised | None = None) -> Script:
    async def script(peer: Peer) -> None:
        await peer.start()
        ask = await peer.receive()
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        await peer.send(SegmentDecided(turn=1, index=0, text="Well,", cut="clause"))
        if error is not None:
            await peer.send(error)
        await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=1, cached_tokens=0, output_tokens=3)))
        await peer.send(TurnDone(turn=1, status="failed" if status == "failed" else "completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    return script


def with_voices(*ids: str, in_use: str) -> Script:
    """Voices are told at the start; a question about the settings and one about the sea are answered."""

    async def script(peer: Peer) -> None:
        assert isinstance(await peer.receive(), StartSession)
        voices = tuple(VoiceInfo(id=each, languages=("en", "zh")) for each in ids)
        await peer.send(structs.replace(ready(), voices=voices), numbered=False)
        while not isinstance(ask := await peer.receive(), SendText):
            await peer.send(SessionUpdated(instructions="", language="en", voice=in_use, output="audio", allow_barge_in=True, ref=ask.id))
        await peer.send(TurnStarted(turn=1, ref=ask.id))
        await peer.send(ReplyDone(turn=1, usage=UsageInfo(prompt_tokens=1, cached_tokens=0, output_tokens=3)))
        await peer.send(TurnDone(turn=1, status="completed", timeline=Timeline()))
        await peer.socket.wait_closed()

    return script


async def test_the_greeting_is_one_line_with_the_voice_in_use(capsys: pytest.CaptureFixture[str]) -> None:
    many = [f"piper/{n}" for n in range(22)]
    async with serving(with_voices(*many, in_use="piper/7")) as server:
        assert await run(server.url, "--text-only") == 0
    assert capsys.readouterr().out.splitlines()[0] == f"connected to {server.url}; voice piper/7 of 22; --voices lists them"


async def test_voices_are_listed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    talk.add_arguments(parser)
    async with serving(with_voices("a", "b", in_use="a")) as server:
        assert await asyncio.to_thread(talk.run, parser.parse_args(["--voices", "--url", server.url])) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["a", "en,", "zh"], ["b", "en,", "zh"]]


async def test_text_only_asks_for_text(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(text_reply(status="completed")) as server:
        assert await run(server.url, "--text-only", "--language", "zh", "--voice", "v1") == 0
    start = server.received[0]
    assert isinstance(start, StartSession)
    assert (start.output, start.language, start.voice) == ("text", "zh", "v1")
    assert "audio" not in capsys.readouterr().out


async def test_a_failed_reply_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    error = ErrorRaised(code="engine_stalled", message="The model made no progress in time.", retryable=True, turn=1)
    async with serving(text_reply(status="failed", error=error)) as server:
        assert await run(server.url, "--text-only") == 1
    said = capsys.readouterr().out
    assert "(error engine_stalled: The model made no progress in time.)" in said
    assert "(the reply was failed)" in said


async def test_a_gateway_that_is_not_running_is_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("ws://127.0.0.1:9/v1/voice", "--text-only") == 3
    assert "Is the gateway running?" in capsys.readouterr().err


async def test_a_wrong_address_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("127.0.0.1:8080", "--text-only") == 2
    assert "expected one like ws://" in capsys.readouterr().err


async def test_an_unknown_voice_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def refuse(peer: Peer) -> None:
        await peer.receive()
        await peer.send(ErrorRaised(code="unknown_voice", message="There is no voice 'x'.", retryable=False), numbered=False)
        await peer.socket.wait_closed()

    async with serving(refuse) as server:
        assert await run(server.url, "--text-only", "--voice", "x") == 2
    said = capsys.readouterr().err
    assert "There is no voice 'x'." in said
    assert said.endswith("`stretto talk --voices` lists them all.\n")


async def test_whoever_hangs_up_on_plain_words_may_want_tls(capsys: pytest.CaptureFixture[str]) -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await run(f"ws://127.0.0.1:{port}/v1/voice") == 3
    assert "Then its address begins with wss://" in capsys.readouterr().err


async def test_a_file_that_cannot_be_written_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("ws://127.0.0.1:9/v1/voice", "--out", "/nonexistent/reply.wav") == 2
    assert "cannot write /nonexistent/reply.wav" in capsys.readouterr().err


async def test_a_connection_that_breaks_is_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    async def vanish(peer: Peer) -> None:
        await peer.start()
        await peer.receive()
        await peer.socket.close(4004, "draining")

    async def know_nothing(peer: Peer) -> None:
        await peer.start(resumed=False)
        await peer.socket.wait_closed()

    async with serving(vanish, know_nothing) as server:
        assert await run(server.url, "--text-only") == 1
    assert "4004 (the server is stopping): draining" in capsys.readouterr().err


async def test_sound_goes_to_a_players_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = tmp_path / "heard"
    recorder = f"import sys; open({str(heard)!r}, 'wb').write(sys.stdin.buffer.read())"
    monkeypatch.setattr(sound, "SPEAKERS", ((sys.executable, "-c", recorder, "{rate}"),))
    async with serving(reply_with_two_segments) as server:
        assert await run(server.url) == 0
    assert heard.read_bytes() == FRAME_20_MS * 2


async def test_a_player_that_ends_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sound, "SPEAKERS", ((sys.executable, "-c", ""),))
    more_than_a_pipe_holds = AudioFrame(turn=1, index=0, pts_ms=0, data=bytes(200_000))  # written only once nobody can read it
    with ExitStack() as stack:
        speaker = sound.sink(None, stack)
        speaker.open(24_000)
        for _ in range(3):
            speaker.play(more_than_a_pipe_holds, 20.0)
        speaker.stop(1)
        speaker.play(more_than_a_pipe_holds, 20.0)
        speaker.close()
    assert capsys.readouterr().err.count("ended; has this machine a sound device?") == 1
    assert speaker.description == f"not heard to its end ({sys.executable} ended)"


async def test_without_a_player_the_sound_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sound, "SPEAKERS", ())
    monkeypatch.chdir(tmp_path)
    async with serving(reply_with_two_segments) as server:
        assert await run(server.url) == 0
    assert "writing reply.wav" in capsys.readouterr().err
    assert (tmp_path / "reply.wav").stat().st_size == 44 + 2 * len(FRAME_20_MS)


def test_a_segment_without_sound_is_said() -> None:
    lines: list[str] = []
    show = Transcript(lines.append)
    show.add(12.0, SegmentDone(turn=1, index=0, audio_ms=0, status="no_voice"))
    show.end("played by aplay")
    assert lines[0].endswith("(segment 1 has no sound: no_voice)")
    assert lines[1] == "first segment none; first audio none; 0.0 s of speech played by aplay; 0 tokens"
