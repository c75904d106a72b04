"""A bad network: a TCP relay in front of a gateway that a test can cut."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

READ_BYTES = 65_536


class Relay:
    """Passes bytes between 127.0.0.1:`port` and `upstream_port`. `cut` drops every connection and refuses new ones until `mend`."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._is_cut = False
        self._acceptor = threading.Thread(target=self._accept, name="relay", daemon=True)
        self.n_connections = 0

    def __enter__(self) -> Self:
        self._acceptor.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        self.cut()
        while self._open:  # its threads close what was cut
            time.sleep(0.01)

    def cut(self) -> None:
        """Lose the network."""
        self._is_cut = True
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Have it back."""
        self._is_cut = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._is_cut:
                    raise ConnectionRefusedError
                upstream = socket.create_connection(("127.0.0.1", self.upstream_port))
            except OSError:
                client.close()
                continue
            self.n_connections += 1
            self._open |= {client, upstream}
            threading.Thread(target=self._serve, args=(client, upstream), name="relay", daemon=True).start()

    def _serve(self, client: socket.socket, upstream: socket.socket) -> None:
        back = threading.Thread(target=_pass, args=(upstream, client), name="relay back", daemon=True)
        with client, upstream:
            back.start()
            _pass(client, upstream)
            back.join()
        self._open -= {client, upstream}


def _pass(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(READ_BYTES):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
