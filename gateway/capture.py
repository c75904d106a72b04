"""What a client and the gateway told each other, kept in a file, so that a complaint can be seen again (`stretto replay`).

Off unless a folder is configured, and then only for those conversations whose operator or client wants it; audio only where that is
asked for besides. One file a session, readable for its owner alone: a first line that says what it is, then one line for each message with
the milliseconds since the session began. Tokens that open a session are left out. Lines are written in a thread; what it cannot take is
counted, and the file says so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.auth import Rights
from gateway.backlog import Backlog
from gateway.config import CaptureSettings, ConfigError
from gateway.errors import NotPermitted
from gateway.events import AppendAudio, AudioFrame, ClientEvent, ServerEvent, SessionReady, StartSession
from gateway.metrics import Metrics

FORMAT = "stretto.capture.v1"
MOST_LINES = 16_384  # waiting for the disk: about a minute of 64 conversations without audio
PAUSE_S = 0.2  # lines are gathered for so long
CLOSE_S = 3.0  # for what is left when the gateway stops
SWEEP_S = 60.0  # old files are looked for at most so often
REMEMBERED = 4096  # sessions whose file is gone on with after a lost connection

_encoder = msgspec.json.Encoder()


class Line(Struct, frozen=True, array_like=True):
    """`at_ms` since the session began; `by` client, server, or capture itself; `body` the message's fields, `type` among them."""

    at_ms: float
    by: str
    body: dict[str, Any]  # Any: a message's fields


class Header(Struct, frozen=True, kw_only=True):
    """The first line. `at`: wall time, UTC."""

    format: str
    session_id: str
    at: str
    audio: bool
    key: str
    start: dict[str, Any]  # Any: a message's fields
    ready: dict[str, Any]  # Any: a message's fields


class Capture:
    """One session's file. Never waits."""

    def __init__(self, captures: Captures, name: str, began_s: float, with_audio: bool) -> None:
        self._captures, self._name, self._began_s, self._with_audio = captures, name, began_s, with_audio
        self._n_bytes = 0
        self._is_full = False

    def received(self, event: ClientEvent) -> None:
        """The client said this."""
        self._write("client", self._fields(event))

    def sent(self, event: ServerEvent, seq: int | None) -> None:
        """This left for the client."""
        self._write("server", self._fields(event) | ({} if seq is None else {"seq": seq}))

    def note(self, what: str) -> None:
        """Something about the connection."""
        self._write("capture", {"type": what})

    def begin(self, header: Header) -> None:
        """The first line."""
        self._put(_encoder.encode(header))

    def _write(self, by: str, body: dict[str, Any]) -> None:
        if self._is_full:
            return
        at_ms = round((self._captures.now() - self._began_s) * 1000, 1)
        line = _encoder.encode(Line(at_ms, by, body))
        if self._n_bytes + len(line) > self._captures.settings.file_bytes:
            self._is_full = True
            self._captures.outcomes.labels("full").inc()
            line = _encoder.encode(Line(at_ms, "capture", {"type": "full"}))
        self._put(line)

    def _put(self, line: bytes) -> None:
        self._n_bytes += len(line) + 1
        self._captures.put(self._name, line)

    def _fields(self, event: ClientEvent | ServerEvent) -> dict[str, Any]:
        fields = fields_of(event)
        if isinstance(event, AppendAudio | AudioFrame) and not self._with_audio:
            fields["data"] = None
            fields["n_bytes"] = len(event.data)
        return fields


class Captures:
    """All of this process. Raises `ConfigError` where the folder cannot be written to."""

    def __init__(self, settings: CaptureSettings, metrics: Metrics, now: Callable[[], float]) -> None:
        self.settings, self.now = settings, now
        self.outcomes = metrics.watching.captures
        self._folder = Path(settings.folder).expanduser()
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (probe := self._folder / f".probe-{os.getpid()}").write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise ConfigError(f"capture.folder {settings.folder}: {error.strerror}; expected a folder that can be written to") from error
        self._open: OrderedDict[str, Capture] = OrderedDict()
        self._swept_s = 0.0
        self._lost: set[str] = set()  # files that lack lines
        self._backlog: Backlog[tuple[str, bytes]] = Backlog("captures", MOST_LINES, self._append, PAUSE_S)

    def is_wanted(self, start: StartSession, rights: Rights) -> bool:
        """Whether this conversation is kept. A client may always say no. Raises `NotPermitted` where it may not say yes."""
        if start.capture is False:
            return False
        if start.resume is not None and start.resume.session_id in self._open:  # what its first connection said
            return True
        is_kept = self.settings.all or rights.capture
        if start.capture and not is_kept and not self.settings.on_request:
            raise NotPermitted("This gateway keeps no conversation on request; expected session.start without `capture`.")
        return is_kept or bool(start.capture)

    def of(self, start: StartSession, ready: SessionReady, rights: Rights) -> Capture:
        """The file of a session that is wanted: a new one, or that of before its connection was lost."""
        known = self._open.pop(ready.session_id, None)
        if known is None:
            part = f"-{secrets.token_hex(2)}" if ready.resumed else ""  # begun by another process
            known = Capture(self, f"{ready.session_id}{part}.jsonl", self.now(), self.settings.audio)
            known.begin(self._header(start, ready, rights))
            self.outcomes.labels("begun").inc()
        elif ready.resumed:
            known.note("resumed")
        self._open[ready.session_id] = known
        if len(self._open) > REMEMBERED:
            self._open.popitem(last=False)
        return known

    def put(self, name: str, line: bytes) -> None:
        """Leave a line to the thread; one that it cannot take is counted, and the file will say that lines are missing."""
        if not self._backlog.put((name, line + b"\n")):
            self._lost.add(name)
            self.outcomes.labels("line_dropped").inc()

    def close(self) -> None:
        """Write what is left, for three seconds at most; blocks as long."""
        n_left = self._backlog.close(CLOSE_S)
        self.outcomes.labels("line_dropped").inc(n_left)

    def _header(self, start: StartSession, ready: SessionReady, rights: Rights) -> Header:
        told = fields_of(structs.replace(ready, resume_token=""))
        asked = fields_of(structs.replace(start, resume=None))
        return Header(
            format=FORMAT,
            session_id=ready.session_id,
            at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            audio=self.settings.audio,
            key=rights.account,
            start=asked,
            ready=told,
        )

    def _append(self, lines: list[tuple[str, bytes]]) -> None:
        """In the backlog's thread."""
        if time.monotonic() - self._swept_s > SWEEP_S:
            self._swept_s = time.monotonic()
            self._sweep()
        by_name: dict[str, list[bytes]] = {}
        for name, line in lines:
            by_name.setdefault(name, []).append(line)
        for name, texts in by_name.items():
            if name in self._lost:
                self._lost.discard(name)
                texts.append(_encoder.encode(Line(0.0, "capture", {"type": "lines_missing"})) + b"\n")
            try:
                append_whole(self._folder / name, b"".join(texts))
            except OSError:  # a full disk costs the capture, not the conversation
                self.outcomes.labels("line_dropped").inc(len(texts))
                self._lost.add(name)

    def _sweep(self) -> None:
        """Delete what is too old, and the oldest files of a folder that is too full."""
        found = []
        for path in self._folder.glob("*.jsonl"):
            with contextlib.suppress(OSError):  # taken away by somebody else
                found.append((path.stat().st_mtime, path.stat().st_size, path))
        oldest = time.time() - self.settings.keep_h * 3600
        n_bytes = sum(size for _, size, _ in found)
        for changed, size, path in sorted(found):
            if changed < oldest or n_bytes > self.settings.folder_bytes:
                n_bytes -= size
                with contextlib.suppress(OSError):  # what cannot be deleted costs nobody else's lines or file
                    path.unlink()
                    self.outcomes.labels("deleted").inc()


def append_whole(path: Path, lines: bytes) -> None:
    """All of it or nothing: half a line in the middle would make the file none. Raises `OSError`."""
    with open(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            while lines:
                lines = lines[file.write(lines) :]
        except OSError:
            os.ftruncate(file.fileno(), size)
            raise


def is_wanted(captures: Captures | None, start: StartSession, rights: Rights) -> bool:
    """As `Captures.is_wanted`; nothing is kept where there are none. Raises `NotPermitted`."""
    if captures is not None:
        return captures.is_wanted(start, rights)
    if start.capture:
        raise NotPermitted("This gateway keeps no conversations; expected session.start without `capture`.")
    return False


def fields_of(event: ClientEvent | ServerEvent) -> dict[str, Any]:
    """A message's fields by their names on the wire, those left out that are None."""
    fields = {"type": event.__struct_config__.tag}
    return fields | {name: value for name, value in structs.asdict(event).items() if value is not None}
