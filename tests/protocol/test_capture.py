"""Conversations that are kept: only where somebody may want it, whole, private, bounded; a gateway without a folder keeps none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gateway import capture
from gateway.auth import Rights
from gateway.capture import FORMAT, Captures, is_wanted
from gateway.config import CaptureSettings, ConfigError, check
from gateway.errors import NotPermitted
from gateway.events import AppendAudio, AudioFrame, AudioOut, Limits, Resume, SendText, SessionReady, StartSession, TextDelta
from gateway.metrics import Metrics
from tests.protocol.peer import peer
from tests.running import gateway

READY = SessionReady(
    session_id="sess_1", resume_token="secret", resumed=False, limits=Limits(lead_ms=1, idle_s=1, message_bytes=1, text_bytes=1),
    audio_out=AudioOut(), voices=(),
)  # fmt: skip
Lines = list[Any]  # Any: JSON


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds are much for what is left, and a busy machine may need more."""
    monkeypatch.setattr(capture, "CLOSE_S", 60.0)


def captures(folder: Path, **settings: Any) -> Captures:  # Any: of each setting's own type
    return Captures(CaptureSettings(folder=str(folder), **settings), Metrics(CollectorRegistry()), lambda: 10.0)


def count(kept: Captures, outcome: str) -> float:
    return float(kept.outcomes.labels(outcome)._value.get())


def lines_of(path: Path) -> Lines:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def kept_in(folder: Path) -> Lines:
    (path,) = folder.glob("*.jsonl")
    return lines_of(path)


@pytest.mark.parametrize(
    ("settings", "right", "wish", "is_kept"),
    [
        ({}, False, None, False),
        ({"all": True}, False, None, True),
        ({"all": True}, False, False, False),
        ({"on_request": True}, False, None, False),
        ({"on_request": True}, False, True, True),
        ({}, True, None, True),
        ({}, True, False, False),
        ({}, True, True, True),
    ],
)
def test_who_is_kept(tmp_path: Path, settings: dict[str, bool], right: bool, wish: bool | None, is_kept: bool) -> None:
    kept = captures(tmp_path, **settings)
    assert is_wanted(kept, StartSession(capture=wish), Rights(capture=right)) is is_kept
    kept.close()


def test_a_client_may_not_ask_where_its_operator_does_not_allow_it(tmp_path: Path) -> None:
    kept = captures(tmp_path)
    for there in (kept, None):
        with pytest.raises(NotPermitted, match="without `capture`"):
            is_wanted(there, StartSession(capture=True), Rights())
    kept.close()


def test_a_file_says_what_it_is_and_no_token_is_in_it(tmp_path: Path) -> None:
    kept = captures(tmp_path)
    session = kept.of(StartSession(user="ann"), READY, Rights(name="kiosk"))
    session.received(SendText(id="1", text="Hello."))
    session.sent(TextDelta(turn=1, text="Yes.", tokens=1), 7)
    kept.close()
    header, *lines = kept_in(tmp_path)
    assert (header["format"], header["session_id"], header["key"], header["start"]["user"]) == (FORMAT, "sess_1", "kiosk", "ann")
    assert lines == [
        [0.0, "client", {"type": "text", "id": "1", "text": "Hello."}],
        [0.0, "server", {"type": "text.delta", "turn": 1, "text": "Yes.", "tokens": 1, "seq": 7}],
    ]
    assert "secret" not in str(header)


@pytest.mark.parametrize("audio", [False, True])
def test_sound_is_kept_only_where_it_is_asked_for(tmp_path: Path, audio: bool) -> None:
    kept = captures(tmp_path, audio=audio)
    session = kept.of(StartSession(), READY, Rights())
    session.received(AppendAudio(data=b"abc", pts_ms=20))
    session.sent(AudioFrame(turn=1, index=0, pts_ms=0, data=b"abcd"), 1)
    kept.close()
    _, said, heard = kept_in(tmp_path)
    assert (said[2].get("data"), said[2].get("n_bytes")) == (("YWJj", None) if audio else (None, 3))
    assert (heard[2].get("data"), heard[2].get("n_bytes")) == (("YWJjZA==", None) if audio else (None, 4))


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept = captures(folder)
    kept.of(StartSession(), READY, Rights())
    kept.close()
    (path,) = folder.glob("*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_long_conversation_is_kept_up_to_its_bound_and_says_so(tmp_path: Path) -> None:
    kept = captures(tmp_path, file_bytes=4096)
    session = kept.of(StartSession(), READY, Rights())
    for _ in range(100):
        session.received(SendText(text="x" * 100))
    kept.close()
    (path,) = tmp_path.glob("*.jsonl")
    assert path.stat().st_size < 4096 + 200
    assert lines_of(path)[-1][1:] == ["capture", {"type": "full"}]
    assert count(kept, "full") == 1


def test_old_files_go_and_the_oldest_of_a_folder_that_is_too_full(tmp_path: Path) -> None:
    now = time.time()
    for name, age_h, size in (("stale", 50, 10), ("older", 3, 4000), ("newer", 2, 4000), ("newest", 1, 4000)):
        path = tmp_path / f"{name}.jsonl"
        path.write_bytes(b"x" * size)
        os.utime(path, (now - age_h * 3600, now - age_h * 3600))
    (tmp_path / "note.txt").write_text("not ours")
    (tmp_path / "folder.jsonl").mkdir()
    os.utime(tmp_path / "folder.jsonl", (0, 0))
    kept = captures(tmp_path, keep_h=48.0, file_bytes=4096, folder_bytes=9000)
    kept.of(StartSession(), READY, Rights())
    kept.close()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["folder", "newer", "newest", "note", "sess_1"]
    assert count(kept, "deleted") == 2
    assert count(kept, "line_dropped") == 0, "a folder that cannot be deleted costs nobody a line"


def test_a_session_that_comes_back_goes_on_in_its_file(tmp_path: Path) -> None:
    kept = captures(tmp_path)
    kept.of(StartSession(), READY, Rights()).note("gone")
    resumed = StartSession(resume=Resume(session_id="sess_1", token="t"))
    assert is_wanted(kept, resumed, Rights())
    assert not is_wanted(kept, msgspec.structs.replace(resumed, capture=False), Rights())
    again = kept.of(resumed, msgspec.structs.replace(READY, resumed=True), Rights())
    again.received(SendText(text="Here again."))
    kept.close()
    assert [line[2]["type"] for line in kept_in(tmp_path)[1:]] == ["gone", "resumed", "text"]


def test_a_folder_that_goes_away_costs_the_capture_and_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    kept = captures(folder)
    folder.rmdir()
    kept.of(StartSession(), READY, Rights()).received(SendText(text="Hello."))
    kept.close()
    assert count(kept, "line_dropped") == 2


def test_a_disk_that_is_full_for_a_while_leaves_no_half_line(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b"first\n")
    program = f"""
import pathlib, resource
from gateway.capture import append_whole
path = pathlib.Path({str(path)!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    append_whole(path, b"second" * 100)
except OSError:
    append_whole(path, b"third\\n")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert path.read_bytes() == b"first\nthird\n"


def test_a_folder_that_cannot_be_written_to_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="expected a folder that can be written to"):
        captures(tmp_path / "file")


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"capture": {"all": True}}, "capture.all is true and capture.folder is empty"),
        ({"capture": {"on_request": True}}, "capture.on_request is true"),
        ({"keys": {"a": {"key": "k", "capture": True}}}, "keys.a.capture is true"),
        ({"capture": {"folder": "x", "file_bytes": 8192, "folder_bytes": 4096}}, "capture.file_bytes (8192) must not be above"),
    ],
)
def test_settings_that_would_keep_nothing_or_too_much_are_refused(tree: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(tree)
    assert told in str(caught.value)


@pytest.mark.may_block  # starts and stops a gateway
async def test_a_gateway_keeps_what_both_said_and_tells_the_client(tmp_path: Path) -> None:
    settings = {"STRETTO_CAPTURE__FOLDER": str(tmp_path), "STRETTO_CAPTURE__ON_REQUEST": "true", "STRETTO_FAKE__REPLY": "Yes. Of course."}
    with gateway(settings) as running:
        async with peer(running.voice_url) as client:
            await client.send(type="session.start", capture=True)
            assert (await client.until("session.ready"))["captured"] is True
            await client.send(type="text", text="Are you there?")
            await client.until("turn.done")
        async with peer(running.voice_url) as other:
            await other.send(type="session.start")
            assert "captured" not in await other.until("session.ready")
            await other.send(type="text", text="A secret.")
            await other.until("turn.done")
        assert running.stop() == 0
        assert f"  kept: conversations that ask for it, word for word, in {tmp_path}\n" in running.lines
    header, *lines = kept_in(tmp_path)
    assert header["start"]["capture"] is True
    told = [(by, body["type"]) for _, by, body in lines]
    assert told[0] == ("client", "text")
    assert told[-1] == ("capture", "gone")
    kinds = [kind for by, kind in told if by == "server"]
    assert [kind for kind in kinds if kind in ("turn.started", "segment", "turn.done")] == [
        "turn.started",
        "segment",
        "segment",
        "turn.done",
    ]
    assert [at for at, _, _ in lines] == sorted(at for at, _, _ in lines)
    assert [body["seq"] for _, by, body in lines if by == "server"] == list(range(1, len(kinds) + 1))
