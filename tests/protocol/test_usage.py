"""What turns used: every record arrives, or is counted. A real file, a real HTTP address."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from gateway import usage
from gateway.config import ConfigError, UsageSettings, check
from gateway.metrics import Metrics
from gateway.turn import Caller
from gateway.usage import UsageBooks, used
from tests.doubles.receiver import receiver
from tests.protocol.peer import peer
from tests.running import gateway
from tests.unit.test_tracing import RECORD, SPOKEN


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three seconds are much for what is left, and a busy machine may need more."""
    monkeypatch.setattr(usage, "CLOSE_S", 60.0)


class Books:
    """Books, and their counts."""

    def __init__(self, **settings: Any) -> None:  # Any: of each setting's own type
        self.registry = CollectorRegistry()
        self.books = UsageBooks(UsageSettings(**settings), Metrics(self.registry))

    def tell(self, n_turns: int) -> None:
        for number in range(1, n_turns + 1):
            self.books.turn_ended(structs.replace(RECORD, turn=number))

    def count(self, outcome: str) -> float:
        return self.registry.get_sample_value("stretto_usage_records_total", {"outcome": outcome}) or 0.0


def turns_of(bodies: list[dict[str, Any]]) -> list[int]:  # Any: JSON
    return [record["turn"] for body in bodies for record in body["records"]]


def test_a_record_has_what_a_bill_needs() -> None:
    record = used(structs.replace(SPOKEN, caller=Caller(key="kiosk", user="ann")), 0.0)
    assert (record.id, record.at, record.key, record.user, record.status) == (
        "sess_1-3",
        "1970-01-01T00:00:00Z",
        "kiosk",
        "ann",
        "completed",
    )
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (40, 30, 12)
    assert (record.speech_in_s, record.audio_out_s, record.heard_s) == (2.0, 1.8, 1.8)
    assert record.timeline.ttft_ms == 50.0


def test_a_dropped_draft_has_an_id_of_its_own() -> None:
    assert used(structs.replace(RECORD, status="dropped", draft=2), 0.0).id == "sess_1-3-draft2"
    assert used(structs.replace(RECORD, draft=2), 0.0).id == "sess_1-3", "one that was kept is the turn"


def test_records_become_lines_of_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    books = Books(file=str(path))
    books.tell(1000)
    books.books.close()
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["turn"] for line in lines] == list(range(1, 1001))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert books.count("written") == 1000


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    books = Books(file=str(path))
    path.rename(tmp_path / "usage.1")
    books.tell(1)
    books.books.close()
    assert len(path.read_bytes().splitlines()) == 1


def test_a_file_that_takes_nothing_any_more_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    books = Books(file=str(folder / "usage.jsonl"))
    (folder / "usage.jsonl").unlink()
    folder.rmdir()
    books.tell(3)
    books.books.close()
    assert books.count("dropped") == 3


def test_a_line_that_a_full_disk_cut_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    path.write_bytes(b'{"id": "sess_1-1", "at"')
    books = Books(file=str(path))
    books.tell(2)
    books.books.close()
    torn, *lines = path.read_bytes().splitlines()
    assert torn == b'{"id": "sess_1-1", "at"'
    assert [msgspec.json.decode(line)["turn"] for line in lines] == [1, 2]


def test_an_address_gets_every_record_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILLING_KEY", "secret")
    with receiver() as address:
        books = Books(url=address.url, key_variable="BILLING_KEY")
        books.tell(600)
        books.books.close()
    assert turns_of(address.taken) == list(range(1, 601))
    assert {headers["authorization"] for headers in address.headers} == {"Bearer secret"}
    assert books.count("sent") == 600


def test_an_address_that_is_unwell_is_asked_again_and_nothing_is_lost() -> None:
    with receiver() as address:
        address.script.extend((503, 429))
        books = Books(url=address.url)
        books.tell(2)
        address.wait_for(lambda: bool(address.taken), "two bad answers, then a good one")
        books.books.close()
    assert turns_of(address.taken) == [1, 2]
    assert (books.count("sent"), books.count("retried"), books.count("dropped")) == (2, 2, 0)


@pytest.mark.parametrize(("status", "location"), [(301, "/elsewhere"), (307, "http://[::bad")])
def test_a_redirect_is_no_receipt(status: int, location: str) -> None:
    with receiver() as address:
        address.script.append(status)
        address.location = location
        books = Books(url=address.url)
        books.tell(2)
        address.wait_for(lambda: bool(address.taken or address.got), "a redirect, then a good answer")
        books.books.close()
    assert turns_of(address.taken) == [1, 2]
    assert address.got == [], "asked without its body, it would have lost both records"


def test_what_an_address_refuses_for_good_is_counted_and_not_repeated() -> None:
    with receiver() as address:
        address.script.append(400)
        books = Books(url=address.url)
        books.tell(2)
        address.wait_for(lambda: bool(address.asked), "one request")
        books.books.close()
        assert len(address.asked) == 1
    assert books.count("refused") == 2


def test_an_address_that_is_gone_costs_its_records_at_the_end_and_every_one_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "CLOSE_S", 3.0)
    with receiver() as address:
        gone = address.url
    books = Books(url=gone, file=str(tmp_path / "usage.jsonl"))
    books.tell(700)
    books.books.close()
    assert (books.count("dropped"), books.count("written")) == (700, 700), "the file does not wait for the address"


def test_an_address_that_hangs_holds_up_nobody_and_a_full_queue_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_RECORDS", 50)
    monkeypatch.setattr(usage, "CLOSE_S", 0.2)
    with receiver() as address:
        address.hang.set()
        books = Books(url=address.url)
        books.tell(1)
        address.wait_for(lambda: bool(address.asked), "it hangs on the first one")
        books.tell(60)
        assert books.count("dropped") == 10
        books.books.close()
        assert books.count("dropped") == 61


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"usage": {"url": "ftp://x"}}, "usage.url"),
        ({"usage": {"urll": "x"}}, "unknown key usage.urll; valid here: file, key_variable, url"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(settings)
    assert told in str(caught.value)


def test_a_key_or_a_file_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"usage\.key_variable names NO_SUCH_KEY"):
        Books(url="http://127.0.0.1:1/", key_variable="NO_SUCH_KEY")
    with pytest.raises(ConfigError, match="expected a file that can be written to"):
        Books(file=str(tmp_path / "no" / "usage.jsonl"))


@pytest.mark.may_block  # starts and stops a gateway
async def test_a_gateway_tells_who_used_what(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    settings = {
        "STRETTO_USAGE__FILE": str(path),
        "STRETTO_KEYS__KIOSK": '{key = "k1"}',
        "STRETTO_FAKE__REPLY": "Zanzibar is warm. " * 10,  # ten seconds of speech: whoever leaves early does leave in the middle
        "STRETTO_SERVER__DRAIN_S": "0.5",
    }
    with gateway(settings) as running:
        async with peer(running.voice_url, start={"user": "ann", "output": "text"}, key="k1") as client:
            await client.send(type="text", text="Tell me of Timbuktu.")
            await client.until("turn.done")
        async with peer(running.voice_url, start={}, key="k1") as client:
            await client.send(type="text", text="Hello.")
            await client.until("turn.started")
        assert running.stop() == 0
    first, second = (msgspec.json.decode(line) for line in path.read_bytes().splitlines())
    assert (first["key"], first["user"], first["status"], first["output"]) == ("kiosk", "ann", "completed", "text")
    assert first["output_tokens"] > 0
    assert (second["user"], second["status"]) == ("", "dropped"), "a client that leaves in the middle of a turn is recorded too"
    assert "Zanzibar" not in path.read_text()
    assert "Timbuktu" not in path.read_text()
