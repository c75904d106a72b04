"""A threaded HTTP server on 127.0.0.1 for doubles whose caller blocks in a thread of the gateway's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class QuietHandler(BaseHTTPRequestHandler):
    """Prints nothing, and does not mind when whoever asked has gone."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except ConnectionError:
            pass


@contextmanager
def answering(handler: type[QuietHandler], freed: threading.Event) -> Iterator[str]:
    """Its address; at the end `freed` is set, for requests that hang."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        freed.set()
        server.shutdown()
        server.server_close()
        thread.join(5)
