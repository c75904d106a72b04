"""What every turn used, for billing and reports: a line in a file, a request to a product's own address, or both.

One record a turn and a dropped draft, made of the turn's record: tokens, seconds, names and latencies, never content. Each has an id,
because a request whose answer was lost is sent again. File and address have a backlog each, so that neither waits for the other; what they
cannot take is counted. An address that is away is tried again until it answers or the gateway stops.
"""

from __future__ import annotations

import http.client
import logging
import os
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.backlog import Backlog
from gateway.config import ConfigError, UsageSettings
from gateway.events import Timeline
from gateway.metrics import Metrics
from gateway.turn import Caller, TurnRecord

MOST_RECORDS = 50_000  # waiting; 25 MB, an hour of 64 busy conversations
PAUSE_S = 0.5  # records are gathered for so long
ANSWER_S = 5.0  # for one request
LONGEST_WAIT_S = 30.0  # between two tries; they begin at half a second and double
CLOSE_S = 3.0  # for what is left when the gateway stops
_ONCE_MORE = frozenset({408, 425, 429})  # of the 4xx; any other one would be the same the next time

log = logging.getLogger("stretto.usage")


class _StayHere(urllib.request.HTTPRedirectHandler):
    """urllib follows a POST by a GET without its body, and shows the key to whoever is there."""

    def stay(self, *_: object) -> None:
        return None

    http_error_301 = http_error_302 = http_error_303 = http_error_307 = http_error_308 = stay  # type: ignore[assignment]  # as urllib asks


_opener = urllib.request.build_opener(_StayHere)


class UsageRecord(Struct, frozen=True, kw_only=True):
    """`at`: the turn's end, UTC. `speech_in_s`: of the utterance it answers; `audio_out_s` was sent, `heard_s` of it was heard."""

    id: str
    at: str
    session_id: str
    turn: int
    key: str
    user: str
    status: str
    input: str
    output: str
    language: str
    voice: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    speech_in_s: float
    audio_out_s: float
    heard_s: float
    timeline: Timeline
    error: str | None = None


def used(record: TurnRecord, wall_s: float) -> UsageRecord:
    """The record of a turn that ended at `wall_s` (Unix time)."""
    spoken = record.spoken
    is_dropped_draft = record.status == "dropped" and record.draft
    return UsageRecord(
        id=f"{record.session_id}-{record.turn}" + (f"-draft{record.draft}" if is_dropped_draft else ""),
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_s)),
        session_id=record.session_id,
        turn=record.turn,
        key=record.caller.key,
        user=record.caller.user,
        status=record.status,
        input=record.input,
        output=record.output,
        language=record.language,
        voice=record.voice,
        prompt_tokens=record.usage.prompt_tokens,
        cached_tokens=record.usage.cached_tokens,
        output_tokens=record.usage.output_tokens,
        speech_in_s=0.0 if spoken is None else round(max(0.0, spoken.ended_s - spoken.began_s), 3),
        audio_out_s=record.audio_ms / 1000,
        heard_s=record.heard_ms / 1000,
        timeline=record.timeline,
        error=record.error,
    )


class UsageBooks:
    """A `TurnWatcher`. Raises `ConfigError` where the file cannot be written to or the variable of the key is missing."""

    def __init__(self, settings: UsageSettings, metrics: Metrics) -> None:
        self._outcomes = metrics.watching.usage
        self._stopping = threading.Event()
        self._is_closed = False
        self._backlogs: list[Backlog[UsageRecord]] = []
        self._encoder = msgspec.json.Encoder()
        if settings.file:
            self._file = Path(settings.file).expanduser()
            self._open_file(settings.file)
            self._backlogs.append(Backlog("usage file", MOST_RECORDS, self._write, PAUSE_S))
        if settings.url:
            self._url, self._headers = settings.url, {"content-type": "application/json", **_authorization(settings.key_variable)}
            self._backlogs.append(Backlog("usage address", MOST_RECORDS, self._post, PAUSE_S))

    def turn_stopped(self, session_id: str, turn: int, caller: Caller) -> None:
        """Its record follows."""

    def turn_ended(self, record: TurnRecord) -> None:
        one = used(record, time.time())
        for backlog in self._backlogs:
            if not backlog.put(one):
                self._outcomes.labels("dropped").inc()

    def close(self) -> None:
        """Write and send what is left, for three seconds at most; blocks as long."""
        self._stopping.set()
        ends_at = time.monotonic() + CLOSE_S
        n_left = sum(backlog.close(max(0.0, ends_at - time.monotonic())) for backlog in self._backlogs)
        self._is_closed = True
        if n_left:
            self._outcomes.labels("dropped").inc(n_left)
            log.error("usage records lost", extra={"n_records": n_left})

    def _open_file(self, name: str) -> None:
        try:
            self._append(b"")
        except OSError as error:
            raise ConfigError(f"usage.file {name}: {error.strerror}; expected a file that can be written to") from error

    def _append(self, data: bytes) -> None:
        """Opened each time, so that the file may be moved away at any moment."""
        with os.fdopen(os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "ab") as file:
            size = os.fstat(file.fileno()).st_size
            if data and size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                data = b"\n" + data  # a full disk or a kill cut the last line: it must not spoil the next one
            file.write(data)

    def _write(self, records: list[UsageRecord]) -> None:
        try:
            self._append(self._encoder.encode_lines(records))
        except OSError as error:
            self._count("dropped", len(records))
            log.error("usage file failed", extra={"detail": error.strerror, "n_records": len(records)})
            return
        self._count("written", len(records))

    def _post(self, records: list[UsageRecord]) -> None:
        """Until the address has taken them, or refuses them for good, or the gateway stops."""
        body, wait_s = self._encoder.encode({"records": records}), 0.5
        while True:
            is_last = self._stopping.is_set()
            status = self._ask(body)
            if status is not None and 200 <= status < 300:
                self._count("sent", len(records))
                return
            if status is not None and 400 <= status < 500 and status not in _ONCE_MORE:
                self._count("refused", len(records))
                log.error("usage records refused", extra={"status": status, "n_records": len(records)})
                return
            if is_last:
                self._count("dropped", len(records))
                return
            self._outcomes.labels("retried").inc()
            self._stopping.wait(wait_s)
            wait_s = min(LONGEST_WAIT_S, 2 * wait_s)

    def _ask(self, body: bytes) -> int | None:
        """The HTTP status of one try; None where nobody answered. A redirect is not followed."""
        request = urllib.request.Request(self._url, body, self._headers)
        try:
            with _opener.open(request, timeout=ANSWER_S) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except (OSError, http.client.HTTPException, ValueError):
            return None

    def _count(self, outcome: str, n_records: int) -> None:
        if not self._is_closed:  # what still hangs then was counted by `close`
            self._outcomes.labels(outcome).inc(n_records)


def _authorization(variable: str) -> dict[str, Any]:  # Any: header values
    if not variable:
        return {}
    if not os.environ.get(variable):
        raise ConfigError(f"usage.key_variable names {variable}, which is not set; expected the key of usage.url in it")
    return {"authorization": f"Bearer {os.environ[variable]}"}
