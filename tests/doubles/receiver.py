"""A local double of a product's own address: takes JSON by POST, answers by a script, keeps what it took."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.doubles.answering_http import QuietHandler, answering

PATIENCE_S = 60.0
Json = dict[str, Any]  # Any: JSON


class Receiver:
    """`script` holds the statuses of the next answers (then 200); `answer` makes the body; `hang` answers nothing until `freed`."""

    def __init__(self) -> None:
        self.script: deque[int] = deque()
        self.taken: list[Json] = []  # bodies that were answered with 200
        self.asked: list[Json] = []  # all bodies
        self.headers: list[dict[str, str]] = []
        self.got: list[str] = []  # paths of GET, which nobody should ask for
        self.answer: Callable[[Json], Json] = lambda _: {}
        self.body: bytes | None = None  # in place of `answer`, as it is
        self.encoding = "identity"
        self.location = ""
        self.cookie = "a=b"
        self.hangs_up = False  # behind an answer that promised nothing of it
        self.delay_s = 0.0
        self.hang = threading.Event()
        self.freed = threading.Event()
        self.url = ""

    def wait_for(self, found: Callable[[], bool], what: str) -> None:
        """Until it is so."""
        ends_at = time.monotonic() + PATIENCE_S
        while not found():
            assert time.monotonic() < ends_at, f"{what}; taken: {self.taken}"
            time.sleep(0.01)


@contextmanager
def receiver() -> Iterator[Receiver]:
    """A running one on 127.0.0.1."""
    double = Receiver()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            double.asked.append(body)
            double.headers.append({name.lower(): value for name, value in self.headers.items()})
            if double.hang.is_set():
                double.freed.wait(60)
            time.sleep(double.delay_s)
            status = double.script.popleft() if double.script else 200
            if status == 200:
                double.taken.append(body)
            answer = json.dumps(double.answer(body)).encode() if double.body is None else double.body
            self.send_response(status)
            self.send_header("content-encoding", double.encoding)
            self.send_header("location", double.location)
            self.send_header("set-cookie", double.cookie)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            self.close_connection = double.hangs_up

        def do_GET(self) -> None:
            double.got.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

    with answering(Handler, double.freed) as address:
        double.url = f"{address}/hook"
        yield double
