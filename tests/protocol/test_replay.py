"""`stretto replay`: a kept conversation is told as it went, and had again with a gateway: its client does the same at the same pace."""

from __future__ import annotations

import asyncio
import base64
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.capture import FORMAT, Header, Line
from gateway.replay.again import Ids
from gateway.replay.story import compared, told
from gateway.replay.tape import BadTape, Tape, read, turns_of
from tests.protocol.peer import peer
from tests.running import Running, gateway

REPLY = "One two three. Four five."
Body = dict[str, Any]  # Any: JSON


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", "replay", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def tape(*lines: tuple[float, str, Body], start: Body | None = None) -> Tape:
    header = Header(format=FORMAT, session_id="sess_1", at="2026-01-01T00:00:00Z", audio=False, key="", start=start or {}, ready={})
    return Tape(header, [Line(at_ms, by, body) for at_ms, by, body in lines])


def written(folder: Path, kept: Tape) -> Path:
    path = folder / "kept.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines([kept.header, *kept.lines]))
    return path


def _is_whole(path: Path) -> bool:
    return path.is_file() and '"gone"' in path.read_text("utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def keeping(place: Path) -> Iterator[Running]:
    settings = {"STRETTO_CAPTURE__FOLDER": str(place), "STRETTO_CAPTURE__ALL": "true", "STRETTO_FAKE__REPLY": REPLY}
    with gateway(settings | {"STRETTO_FAKE__TTS_RTF": "0.01"}) as running:
        yield running


@pytest.fixture(scope="module")
def other() -> Iterator[Running]:
    """A gateway that is slower and says something else."""
    with gateway({"STRETTO_FAKE__REPLY": "Another answer.", "STRETTO_FAKE__TTFT_MS": "400", "STRETTO_FAKE__TTS_RTF": "0.01"}) as running:
        yield running


async def kept_by(running: Running, place: Path, start: Body | None = None) -> Path:
    """A conversation in which the second question interrupts the first one's answer; its file."""
    async with peer(running.voice_url) as client:
        await client.send(type="session.start", **(start or {}))
        session_id = (await client.until("session.ready"))["session_id"]
        await client.send(type="text", text="What is down there?")
        await client.until("audio", turn=1)
        await client.send(type="playout", turn=1, played_ms=0)
        await client.send(type="text", text="And up there?")
        await client.until("interrupted", turn=1)
        await client.send(type="playout", turn=1, played_ms=20, final=True)
        await client.until("reply.done", turn=2)
        await client.send(type="playout", turn=2, played_ms=60_000, final=True)
        await client.until("turn.done", turn=2)
    path = place / f"{session_id}.jsonl"
    while not _is_whole(path):  # written by a thread
        await asyncio.sleep(0.05)
    return path


@pytest.mark.may_block  # runs the command
async def test_a_conversation_is_told_as_it_went(keeping: Running, place: Path) -> None:
    done = replay(str(await kept_by(keeping, place)))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    marks = [
        '-> writes "What is down there?"', "<- turn 1 begins", "<- turn 1 segment 0 (", "turn 1: first sound of segment 0",
        '-> writes "And up there?"', "<- turn 1 is interrupted (text)", "<- turn 2 begins", "<- turn 2 completed: ",
        "the connection is gone",
    ]  # fmt: skip
    places = [next(n for n, line in enumerate(lines) if mark in line) for mark in marks]
    assert places == sorted(places)
    times = [float(line[:9]) for line in lines if re.match(r" *\d+\.\d{3}  ", line)]
    assert len(times) > len(marks)
    assert times == sorted(times)
    table = lines[-2:]
    assert [row.split()[:2] for row in table] == [["1", "interrupted"], ["2", "completed"]]


@pytest.mark.may_block  # runs the command
async def test_it_is_had_again_with_the_same_outcome(keeping: Running, place: Path) -> None:
    path = await kept_by(keeping, place)
    done = replay(str(path), "--against", keeping.voice_url)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[:3] for line in done.stdout.splitlines() if line.startswith(("before", "now"))]
    assert rows == [["before", "1", "interrupted"], ["now", "1", "interrupted"], ["before", "2", "completed"], ["now", "2", "completed"]]
    assert "the same text" in done.stdout.splitlines()[-1]
    assert "status" not in done.stdout.splitlines()[-1]


@pytest.mark.may_block  # runs the command
async def test_another_gateway_shows_what_it_does_differently(keeping: Running, other: Running, place: Path) -> None:
    for _ in range(5):  # what was kept on a busy machine may have been slower still
        path = await kept_by(keeping, place)
        done = replay(str(path), "--against", other.voice_url)
        assert done.returncode == 0, done.stderr
        last = done.stdout.splitlines()[-1]
        assert f"another text ({len(REPLY)} -> 15 characters)" in last
        if "first_segment +" in last:
            return
    pytest.fail(last)


@pytest.mark.may_block  # runs the command
async def test_words_that_were_spoken_are_sent_as_text_where_no_sound_was_kept(keeping: Running, tmp_path: Path) -> None:
    kept = tape(
        (10.0, "client", {"type": "audio", "pts_ms": 0, "n_bytes": 640}),
        (20.0, "server", {"type": "transcript", "utterance": 1, "text": "Hel", "final": False}),
        (50.0, "server", {"type": "transcript", "utterance": 1, "text": "Hello.", "turn": 1, "final": True, "seq": 1}),
        (60.0, "server", {"type": "turn.started", "turn": 1, "seq": 2}),
        (90.0, "server", {"type": "turn.done", "turn": 1, "status": "completed", "timeline": {}, "seq": 3}),
        start={"type": "session.start", "output": "text", "audio_in": {"codec": "pcm16", "rate_hz": 16000}},
    )
    done = replay(str(written(tmp_path, kept)), "--against", keeping.voice_url, "--all")
    assert done.returncode == 0, done.stderr
    assert "no sound was kept" in done.stderr
    assert '"type": "turn.done", "turn": 1, "status": "completed"' in done.stdout
    assert done.stdout.count('"turn.started"') == 1


@pytest.mark.may_block  # runs the command
async def test_sound_that_was_kept_is_said_again(tmp_path: Path) -> None:
    loud, quiet = (base64.b64encode(sample * 320).decode() for sample in (b"\x00\x10", b"\x00\x00"))
    frames = [(20.0 * n, "client", {"type": "audio", "pts_ms": 20 * n, "data": loud if n < 50 else quiet}) for n in range(100)]
    kept = tape(*frames, start={"type": "session.start", "output": "text", "audio_in": {"codec": "pcm16", "rate_hz": 16000}})
    path = written(tmp_path, Tape(msgspec.structs.replace(kept.header, audio=True), kept.lines))
    with gateway({"STRETTO_ASR__ENGINE": "fake", "STRETTO_LISTEN__VAD": "fake", "STRETTO_LISTEN__END_OF_TURN": "fake"}) as listening:
        done = replay(str(path), "--against", listening.voice_url, "--all")
    assert done.returncode == 0, done.stderr
    assert '"text": "What is down there in the sea?", "final": true' in done.stdout
    assert '"type": "turn.done", "turn": 1, "status": "completed"' in done.stdout


def test_the_ids_of_now_stand_for_those_of_then() -> None:
    then = tape(
        (0, "server", {"type": "turn.started", "turn": 1, "item_id": "i1", "reply_id": "r1"}),
        (1, "server", {"type": "tool.call", "turn": 1, "call_id": "c1", "item_id": "t1"}),
    )
    ids = Ids(then.lines)
    assert (ids.of("own"), ids.is_known("own"), ids.is_known("c1")) == ("own", True, False)
    ids.see(Line(0, "server", {"type": "turn.started", "turn": 1, "item_id": "I", "reply_id": "R"}))
    assert (ids.of("i1"), ids.of("r1"), ids.is_known("c1")) == ("I", "R", False)
    ids.see(Line(1, "server", {"type": "tool.call", "turn": 1, "call_id": "C", "item_id": "T"}))
    assert ids.of("c1") in ("C", "T")
    assert ids.is_known("c1")


HEADER = '{"format":"stretto.capture.v1","session_id":"s","at":"","audio":false,"key":"","start":{%s},"ready":{}}\n'


@pytest.mark.parametrize(
    ("text", "told_why"),
    [
        ("", "its first line is not one of"),
        ("{}\n", "its first line is not one of"),
        ("not json\n", "its first line is not one of"),
        ('{"format":"other","session_id":"s","at":"","audio":false,"key":"","start":{},"ready":{}}\n', "expected stretto.capture.v1"),
        (HEADER % "" + "[1,2]\n", "line 2"),
        (HEADER % '"output":5', "expected stretto.capture.v1|Expected `str`|Invalid enum"),
        (HEADER % "" + '[1,"server",{"turn":1}]\n', "line 2: Got the type None; expected the name of a message"),
        (HEADER % "" + '[1,"client",{"type":"text"}]\n', "line 2: Object missing required field `text`"),
        (HEADER % "" + '[1,"server",{"type":"heard","turn":[],"heard_ms":1,"heard_text":""}]\n', "line 2: Expected `int`, got `array`"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_place(tmp_path: Path, text: str, told_why: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(text)
    with pytest.raises(BadTape, match=told_why):
        read(path)


def test_a_file_whose_last_line_was_cut_is_told_up_to_there(tmp_path: Path) -> None:
    path = written(tmp_path, tape((0, "client", {"type": "text", "text": "Hello."}), (5, "client", {"type": "cancel"})))
    path.write_bytes(path.read_bytes()[:-5])
    kept = read(path)
    assert len(kept.lines) == 1
    assert any("ends in the middle of a line" in line for line in told(kept))


def test_a_file_or_an_address_that_is_not_there_is_told(tmp_path: Path) -> None:
    gone = replay(str(tmp_path / "no.jsonl"))
    assert (gone.returncode, "cannot read" in gone.stderr) == (2, True)
    path = written(tmp_path, tape((0, "client", {"type": "text", "text": "Hello."})))
    nobody = replay(str(path), "--against", "ws://127.0.0.1:1/v1/voice")
    assert (nobody.returncode, "nothing listens" in nobody.stderr) == (3, True)


def test_turns_that_are_missing_or_open_are_told() -> None:
    done: Body = {"type": "turn.done", "turn": 1, "status": "completed", "timeline": {"ttft_ms": 50.0}}
    before = turns_of(tape((0, "server", done), (1, "server", {"type": "turn.started", "turn": 2})).lines)
    after = turns_of(
        tape((0, "server", {**done, "status": "failed"}), (0, "server", {"type": "error", "turn": 1, "code": "engine_failed"})).lines
    )
    text = "\n".join(compared(before, after))
    assert "status completed -> failed" in text
    assert "errors none -> ['engine_failed']" in text
    assert "(no such turn)" in text
