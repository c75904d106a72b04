"""What workers share: counts, and one page of metrics."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine.fake import ScriptedModel, ScriptedVoice
from gateway.admission import Admission, Crowd
from gateway.auth import FULL_RIGHTS
from gateway.config import check
from gateway.errors import Overloaded
from gateway.events import Resume, StartSession
from gateway.metrics import Metrics
from gateway.sessions import Sessions
from gateway.speech.markup import DEFAULT
from gateway.tickets import MemoryKeeper
from gateway.turn import Parts
from gateway.workers import Desk, Row, Worker, crowds
from gateway.workers.crowds import SharedCrowds
from gateway.workers.desk import QUESTION_S
from gateway.workers.line import Broken, Page, called
from gateway.workers.page import merged
from gateway.workers.places import SharedPlaces, lay_out


def page(n_sessions: int) -> bytes:
    metrics = Metrics(CollectorRegistry())
    metrics.sessions.set(n_sessions)
    metrics.turns.labels("completed").inc(n_sessions)
    return generate_latest(metrics.registry)


def test_the_pages_of_all_workers_are_one_that_prometheus_reads() -> None:
    whole = merged({1: page(3), 0: page(2)}).decode()
    families = list(text_string_to_metric_families(whole))
    assert len({family.name for family in families}) == len(families), "a family that comes twice is refused"
    samples = {(s.name, s.labels.get("worker"), s.labels.get("status")): s.value for family in families for s in family.samples}
    assert samples["stretto_sessions", "0", None] == 2
    assert samples["stretto_sessions", "1", None] == 3
    assert samples["stretto_turns_total", "1", "completed"] == 3
    assert all("worker" in sample.labels for family in families for sample in family.samples)
    alone = list(text_string_to_metric_families(page(1).decode()))
    assert {family.name for family in families} == {family.name for family in alone}


@pytest.mark.parametrize(
    ("sample", "labeled"),
    [
        ("a 1.0", 'a{worker="7"} 1.0'),
        ('a{b="c"} 1', 'a{worker="7",b="c"} 1'),
        ('a{b="} # {",c="\\""} +Inf 17', 'a{worker="7",b="} # {",c="\\""} +Inf 17'),
    ],
)
def test_every_sample_tells_whose_it_is(sample: str, labeled: str) -> None:
    head = "# HELP a A.\n# TYPE a gauge\n"
    assert merged({7: f"{head}{sample}\n".encode()}).decode() == f"{head}{labeled}\n"


def test_a_page_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="no sample"):
        merged({0: b"<html>\n# HELP a A.\n{}\n"})


def test_workers_see_each_others_places_and_the_dead_have_none(tmp_path: Path) -> None:
    lay_out(tmp_path / "places", 3)
    one, two, three = (SharedPlaces(tmp_path / "places", number, 3) for number in range(3))
    one.tell(5, 1)
    two.tell(2, 0)
    assert three.others() == (7, 1)
    assert one.others() == (2, 0)
    one.clear()
    assert three.others() == (2, 0)
    assert (one.n_restarts, two.n_restarts) == (1, 0)
    one.tell(1, 0)
    assert one.n_restarts == 1


def test_a_place_that_another_worker_has_given_away_is_taken(tmp_path: Path) -> None:
    lay_out(tmp_path / "places", 2)
    here, there = (Admission(3, SharedPlaces(tmp_path / "places", number, 2)) for number in range(2))
    here.is_ready = there.is_ready = True
    here.connected += 2
    there.connected += 1
    assert isinstance(here.refusal(), Overloaded)
    assert isinstance(there.refusal(), Overloaded)
    with here.carrying():  # one of the two is the connection of a session over there, which counts it
        assert there.refusal() is None
    here.connected -= 1
    assert there.refusal() is None
    here.detached += 1
    there.connected += 1
    assert there.is_full(), "whoever is away keeps the place"


def test_addresses_may_do_together_what_the_settings_allow_them(tmp_path: Path) -> None:
    lay_out(tmp_path / "places", 4)
    crowds.lay_out(tmp_path / "crowds", 4)
    row = Row(Worker(number=0, count=4, folder=tmp_path))
    server = row.share_of(check({"server": {"handshakes_per_s": 100, "failed_keys_per_min": 60}})).server
    assert (server.handshakes_per_s, server.failed_keys_per_min) == (25, 15)
    assert row.share_of(check({"server": {"failed_keys_per_min": 2}})).server.failed_keys_per_min == 1


async def test_a_worker_that_hangs_is_passed_over_whatever_it_is_asked(tmp_path: Path) -> None:
    lay_out(tmp_path / "places", 2)
    crowds.lay_out(tmp_path / "crowds", 2)
    row = Row(Worker(number=0, count=2, folder=tmp_path))
    start = StartSession(instructions="x" * 500_000, resume=Resume(session_id="sess_1", token="t", last_seq=0))  # more than a socket holds
    with socket.socket(socket.AF_UNIX) as hung:
        hung.bind(str(row.worker.socket(1)))
        hung.listen()
        async with asyncio.timeout(60):
            assert await row.siblings.holder(start, FULL_RIGHTS) is None


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_whoever_speaks_to_a_worker_that_is_gone_is_told_so(run: Callable[[Any], None]) -> None:  # Any: a coroutine
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def talk(path: Path) -> None:
        async with await asyncio.start_unix_server(hang_up, path), called(path, 60) as line:
            with pytest.raises(Broken):
                await line.receive(bytes)
            for _ in range(3):
                with pytest.raises(Broken):
                    await line.send(Page())

    with tempfile.TemporaryDirectory() as folder:
        run(talk(Path(folder) / "socket"))


class GoneClient:
    """A client's socket that disconnects when its worker has hung up."""

    def __init__(self) -> None:
        self.hung_up = asyncio.Event()
        self.n_asked = 0

    async def receive(self) -> dict[str, Any]:  # Any: an ASGI message
        self.n_asked += 1
        await self.hung_up.wait()
        assert self.n_asked < 3, "asked on and on"
        if self.n_asked == 2:
            raise RuntimeError("disconnected before")
        return {"type": "websocket.disconnect", "code": 1006}

    async def close(self, code: int, reason: str) -> None:
        await asyncio.Event().wait()  # the peer takes nothing any more


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_client_and_its_worker_may_go_at_the_same_moment(run: Callable[[Any], None]) -> None:  # Any: a coroutine
    async def talk(folder: Path) -> None:
        client = GoneClient()

        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"\0\0\0\1\xc3")  # the session is here
            await writer.drain()
            await asyncio.sleep(0.1)
            writer.transport.abort()
            asyncio.get_running_loop().call_later(0.1, client.hung_up.set)

        lay_out(folder / "places", 2)
        crowds.lay_out(folder / "crowds", 2)
        row = Row(Worker(number=0, count=2, folder=folder))
        async with await asyncio.start_unix_server(hang_up, row.worker.socket(1)), asyncio.timeout(60):
            start = StartSession(resume=Resume(session_id="sess_1", token="t", last_seq=0))
            carry = await row.siblings.holder(start, FULL_RIGHTS)
            assert carry is not None
            await carry(client, 10.0)
        assert client.n_asked == 1

    with tempfile.TemporaryDirectory() as folder:
        run(talk(Path(folder)))


@pytest.mark.virtual
@pytest.mark.parametrize("said", [b"", b"\0\0", b"\0\0\0\x20\xc0"])
async def test_a_socket_that_never_asks_is_let_go(said: bytes) -> None:
    silent, ours = socket.socketpair()
    with silent:
        silent.sendall(said)
        reader, writer = await asyncio.open_connection(sock=ours)
        began_s = asyncio.get_running_loop().time()
        await idle_desk().answer(reader, writer)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(QUESTION_S)
        await writer.wait_closed()
        assert silent.recv(1) == b"", "closed from here"


@pytest.mark.virtual
async def test_a_socket_that_takes_no_answer_is_let_go() -> None:
    deaf, ours = socket.socketpair()
    with deaf:
        question = msgspec.msgpack.encode(Page())
        deaf.sendall(len(question).to_bytes(4) + question)
        reader, writer = await asyncio.open_connection(sock=ours)
        began_s = asyncio.get_running_loop().time()
        await idle_desk(page=b"x" * 4_000_000).answer(reader, writer)
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(QUESTION_S)
        writer.transport.abort()


def idle_desk(page: bytes = b"") -> Desk:
    """One that holds no sessions."""

    async def own_page() -> bytes:
        return page

    settings, metrics = check({}), Metrics(CollectorRegistry())
    loop = asyncio.get_running_loop()
    parts = Parts(model=ScriptedModel(), voices=ScriptedVoice(), metrics=metrics, settings=settings, rules=DEFAULT, now=loop.time)
    return Desk(parts, Sessions(parts, Admission(1)), MemoryKeeper(loop.time), own_page)


def test_workers_see_how_many_sockets_an_address_holds_and_the_dead_hold_none(tmp_path: Path) -> None:
    crowds.lay_out(tmp_path / "crowds", 3)
    rows = [SharedCrowds(tmp_path / "crowds", number, 3) for number in range(3)]
    one, two, three = (Crowd(5, row.of("socket")) for row in rows)
    assert [crowd.enter("10.0.0.1") for crowd in (one, two, three, one, two, three, one)] == [True] * 5 + [False] * 2
    assert all(crowd.enter("10.0.0.2") for crowd in (one, two, three)), "another address does not notice"
    assert Crowd(1, rows[0].of("client")).enter("10.0.0.1"), "nor does another kind of socket"
    two.leave("10.0.0.1")
    assert [three.enter("10.0.0.1"), one.enter("10.0.0.1")] == [True, False]
    rows[1].clear()
    assert [one.enter("10.0.0.1"), one.enter("10.0.0.1")] == [True, False]
    assert [rows[0].of("socket").others(address) for address in ("10.0.0.1", "10.0.0.2")] == [2, 1]
    for row in rows:
        row.close()


def test_an_address_is_never_counted_too_little_and_hardly_too_much_among_thousands(tmp_path: Path) -> None:
    crowds.lay_out(tmp_path / "crowds", 2)
    one, two = (SharedCrowds(tmp_path / "crowds", number, 2) for number in range(2))
    here, there = one.of("socket"), two.of("socket")
    held = {f"2001:db8:{number:x}::/64": 1 + number % 3 for number in range(3000)}
    for address, count in held.items():
        here.tell(address, count)
    counted = {address: there.others(address) for address in held}
    assert all(counted[address] >= count for address, count in held.items())
    assert sum(counted[address] > count for address, count in held.items()) < 60
    for address, count in held.items():
        here.tell(address, -count)
    assert not any(there.others(address) for address in held)
    one.close()
    two.close()


def test_strangers_and_keys_are_not_taken_for_a_crowd_whose_every_socket_is_counted_twice(tmp_path: Path) -> None:
    """With 2,000 addresses inside: as what holds a socket, and as a client."""
    path = tmp_path / "crowds"
    crowds.lay_out(path, 2)
    with path.open("r+b") as file:
        file.write(bytes(range(32)))  # the same cells each time
    one, two = (SharedCrowds(path, number, 2) for number in range(2))
    for number in range(2000):
        for kind in ("socket", "client"):
            one.of(kind).tell(f"2001:db8:{number:x}::/64", 1)
    strangers = [f"2001:db9:{number:x}::/64" for number in range(20_000)]
    assert sum(two.of("socket").others(stranger) > 0 for stranger in strangers) < 10
    assert not any(two.of("key").others(stranger) for stranger in strangers)
    one.close()
    two.close()
