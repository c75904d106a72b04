"""The server's process: in a session of its own, found again through a state file, never started twice.

The state file holds the process id and the moment the kernel started it, so that a recycled id is never mistaken for the server.
Linux only (/proc), as vLLM itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

_LAST_WORDS = 12  # lines of the log that go into a message
_LOG_BYTES = 32 << 20  # a log that has grown beyond is begun anew at the next start
_SOCKET_BYTES = 100  # the kernel allows 107 for the path of a socket


class State(Struct, frozen=True, kw_only=True):
    """What is known of a server that was started. `started`: in the kernel's ticks."""

    pid: int
    started: int
    digest: str
    socket: str
    log: str


class ServerProcess:
    """The server with this `digest`, its files in `folder`."""

    def __init__(self, folder: Path, digest: str) -> None:
        self._state_file = folder / f"{digest}.json"
        self._lock_file = folder / f"{digest}.lock"
        self._folder, self._digest = folder, digest
        self.log = folder / f"{digest}.log"
        self.socket = str(folder / f"{digest}.sock")
        if len(self.socket.encode()) > _SOCKET_BYTES:
            self.socket = f"/tmp/stretto-{os.getuid()}/{digest}.sock"
        self._child: int | None = None  # its process id, while it is ours to collect

    @property
    def pid(self) -> int | None:
        """Of the server that runs now, whoever started it."""
        state = _read(self._state_file)
        self._collect()
        return state.pid if state is not None and is_alive(state) else None

    def ensure(self, command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """See that the server runs; True where it had to be started. Blocks for milliseconds only. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        Path(self.socket).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _locked(self._lock_file):
            if self.pid is not None:
                return False
            Path(self.socket).unlink(missing_ok=True)
            if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
                self.log.unlink()
            pid = self._child = _spawn(command, environment, self.log)
            state = State(pid=pid, started=_started(pid) or 0, digest=self._digest, socket=self.socket, log=str(self.log))
            self._state_file.write_bytes(msgspec.json.encode(state))
            return True

    def stop(self, within_s: float) -> bool:
        """End the server; True where there was one. Blocks: call it in a thread."""
        state = _read(self._state_file)
        was_there = state is not None and end(state, within_s)
        self._collect()
        self._state_file.unlink(missing_ok=True)
        Path(self.socket).unlink(missing_ok=True)
        return was_there

    def _collect(self) -> None:
        """Let the kernel forget our child when it has ended."""
        if self._child is not None:
            try:
                ended, _ = os.waitpid(self._child, os.WNOHANG)
            except ChildProcessError:
                ended = self._child
            if ended:
                self._child = None

    def last_words(self) -> str:
        """The end of its log."""
        try:
            lines = self.log.read_bytes()[-16_384:].decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return "\n".join(line for line in lines if line.strip())[-4096:] if len(lines) <= _LAST_WORDS else "\n".join(lines[-_LAST_WORDS:])


def _spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Start it in a session of its own: neither Ctrl-C nor the end of the gateway's group reaches it.

    Not `subprocess`: its objects insist on seeing the child's end, and this child is meant to outlive us.
    """
    null, out = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), os.O_WRONLY | os.O_CREAT | os.O_APPEND
    to_log = (os.POSIX_SPAWN_OPEN, 1, str(log), out, 0o600)
    return os.posix_spawnp(command[0], list(command), environment, file_actions=[null, to_log, (os.POSIX_SPAWN_DUP2, 1, 2)], setsid=True)


def stop_others(folder: Path, digest: str, within_s: float) -> int:
    """End servers that were started with other settings: they hold the GPU's memory. Blocks."""
    return sum(_stop_file(path, within_s) for path in folder.glob("*.json") if path.stem != digest)


def stop_all(folder: Path, within_s: float) -> int:
    """End every server of this folder; how many there were. Blocks."""
    return sum(_stop_file(path, within_s) for path in folder.glob("*.json"))


def _stop_file(path: Path, within_s: float) -> bool:
    state = _read(path)
    was_there = state is not None and end(state, within_s)
    path.unlink(missing_ok=True)
    return was_there


def end(state: State, within_s: float) -> bool:
    """SIGTERM to the server, SIGKILL to its whole session after `within_s`: its engine core would keep the GPU. False: it was not there."""
    if not is_alive(state):
        return False
    os.kill(state.pid, signal.SIGTERM)
    deadline = time.monotonic() + within_s
    while is_alive(state) and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(state.pid, signal.SIGKILL)  # it leads its own session, so the group is its own
    return True


def is_alive(state: State) -> bool:
    """Whether this very process still runs (a zombie does not)."""
    return _started(state.pid) == state.started


def _started(pid: int) -> int | None:
    """When the kernel started it, None for none and for a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _read(path: Path) -> State | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except (OSError, msgspec.DecodeError):
        return None


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two gateways that start together start one server."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
