"""Asking a product's address whether words may be heard: its answer counts, without one in time the setting does. A real HTTP server."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from gateway.config import ConfigError, ModerationSettings, check
from gateway.metrics import Metrics
from gateway.moderation import HttpModerator
from gateway.turn import Caller, Subject
from tests.doubles.receiver import Receiver, receiver
from tests.protocol.peer import connect, peer
from tests.running import gateway

SUBJECT = Subject(
    kind="segment", text="It is warm.", session_id="sess_1", turn=3, language="en", caller=Caller(key="kiosk", user="ann"), index=2
)


@pytest.fixture
def judge() -> Iterator[Receiver]:
    with receiver() as double:
        double.answer = lambda asked: {"allowed": "bad" not in asked["text"], "why": "a word"}
        yield double


async def verdict(url: str, text: str = "It is warm.", **settings: Any) -> tuple[bool, str]:  # Any: of each setting's own type
    """What the moderator says, and what was counted."""
    registry = CollectorRegistry()
    moderator = HttpModerator(ModerationSettings(url=url, **settings), Metrics(registry))
    try:
        allowed = await moderator.allows(Subject(**{name: getattr(SUBJECT, name) for name in SUBJECT.__struct_fields__} | {"text": text}))
    finally:
        await moderator.close()
    counts = {
        name: registry.get_sample_value("stretto_moderation_total", {"kind": "segment", "verdict": name})
        for name in ("allowed", "refused", "failed")
    }
    assert registry.get_sample_value("stretto_moderation_seconds_count", {"kind": "segment"}) == 1
    return allowed, next(name for name, n in counts.items() if n == 1)


async def test_the_address_decides_and_is_told_what_it_may_need(judge: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "secret")
    assert await verdict(judge.url, key_variable="JUDGE_KEY") == (True, "allowed")
    assert await verdict(judge.url, "A bad word.") == (False, "refused")
    assert judge.asked[0] == {
        "kind": "segment", "text": "It is warm.", "session_id": "sess_1", "turn": 3, "index": 2, "language": "en", "key": "kiosk",
        "user": "ann",
    }  # fmt: skip
    assert judge.headers[0]["authorization"] == "Bearer secret"


@pytest.mark.parametrize(("on_failure", "allowed"), [("allow", True), ("refuse", False)])
@pytest.mark.parametrize("fault", ["hangs", "status", "gone", "no verdict", "no JSON", "number", "deep"])
async def test_without_a_good_answer_in_time_the_setting_counts(judge: Receiver, fault: str, on_failure: str, allowed: bool) -> None:
    url = judge.url
    match fault:
        case "hangs":
            judge.hang.set()
        case "status":
            judge.script.append(500)
        case "gone":
            with receiver() as gone:
                url = gone.url
        case "no verdict":
            judge.answer = lambda _: {"ok": True}
        case "no JSON":
            judge.answer = lambda _: "yes"  # type: ignore[assignment,return-value]  # a wrong answer
        case "deep":
            judge.body = b'{"x": ' + b"[" * 5000 + b"]" * 5000 + b', "allowed": true}'
        case _:
            judge.answer = lambda _: {"allowed": 1}
    assert await verdict(url, on_failure=on_failure, deadline_ms=1000 if fault != "hangs" else 50) == (allowed, "failed")


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"url": "here"}, "moderation.url"),
        ({"deadline_ms": 5}, "moderation.deadline_ms: expected `int` >= 10; got 5"),
        ({"on_failure": "shrug"}, "moderation.on_failure: invalid enum value 'shrug', expected one of allow, refuse"),
        ({"judges": ["output"]}, "moderation.judges: invalid enum value 'output', expected one of input, segment"),
    ],
)
def test_wrong_settings_are_refused(tree: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check({"moderation": tree})
    assert told in str(caught.value)


def test_a_key_that_is_not_there_ends_the_start() -> None:
    with pytest.raises(ConfigError, match=r"moderation\.key_variable names NO_SUCH_KEY"):
        HttpModerator(ModerationSettings(url="http://127.0.0.1:1/", key_variable="NO_SUCH_KEY"), Metrics(CollectorRegistry()))


@pytest.mark.may_block  # starts and stops a gateway
async def test_a_gateway_asks_and_obeys(judge: Receiver) -> None:
    settings = {
        "STRETTO_MODERATION__URL": judge.url,
        "STRETTO_MODERATION__DEADLINE_MS": "5000",
        "STRETTO_MODERATION__PHRASE": "No.",
        "STRETTO_FAKE__REPLY": "Yes. Of course.",
        "STRETTO_SERVER__DRAIN_S": "0.5",
    }
    with gateway(settings) as running:
        async with peer(running.voice_url, start={"output": "text"}) as client:
            await client.send(type="text", text="Hello.")
            assert (await client.until("turn.done"))["status"] == "completed"
            await client.send(type="text", text="A bad word.")
            assert (await client.until("error"))["code"] == "input_refused"
            assert (await client.until("turn.done", turn=2))["status"] == "refused"
            assert (await client.until("segment", turn=3))["text"] == "No."
        refused = await response_to(running.voice_url.replace("voice", "realtime"), "A bad word.")
        fine = await response_to(running.voice_url.replace("voice", "realtime"), "Hello.")
        judge.answer = lambda asked: {"allowed": asked["kind"] == "input" or "course" not in asked["text"]}
        shortened = await response_to(running.voice_url.replace("voice", "realtime"), "Hello.")
        assert running.stop() == 0
    assert (shortened["status"], shortened["status_details"]["reason"]) == ("incomplete", "content_filter")
    assert "Yes." in json.dumps(shortened["output"])
    assert "course" not in json.dumps(shortened["output"])
    assert (refused["status"], refused["status_details"]["reason"]) == ("incomplete", "content_filter")
    assert fine["status"] == "completed"
    assert [asked["kind"] for asked in judge.asked[:3]] == ["input", "segment", "segment"]


async def response_to(url: str, text: str) -> dict[str, Any]:  # Any: JSON
    """The response that an OpenAI client gets."""
    content = [{"type": "input_text", "text": text}]
    item = {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
    async with connect(url) as socket:
        await socket.send(json.dumps(item))
        await socket.send(json.dumps({"type": "response.create"}))
        while (event := json.loads(await socket.recv()))["type"] != "response.done":
            pass
        return dict(event["response"])


async def test_an_answer_that_is_too_large_or_packed_is_none(judge: Receiver) -> None:
    judge.body = b'{"why": "' + b"x" * 65_536 + b'", "allowed": true}'
    assert await verdict(judge.url, deadline_ms=5000) == (False, "failed")
    judge.body, judge.encoding = gzip.compress(b'{"allowed": true}' + b" " * 10_000_000), "gzip"
    assert await verdict(judge.url, deadline_ms=5000) == (False, "failed")
    assert judge.headers[0]["accept-encoding"] == "identity"


async def test_a_connection_that_is_closed_behind_an_answer_and_its_cookies_cost_no_verdict(judge: Receiver) -> None:
    judge.hangs_up, judge.cookie = True, "\xff=\xff"
    moderator = HttpModerator(ModerationSettings(url=judge.url, deadline_ms=5000), Metrics(CollectorRegistry()))
    try:
        assert [await moderator.allows(SUBJECT) for _ in range(5)] == [True] * 5
    finally:
        await moderator.close()
    assert not any("cookie" in headers for headers in judge.headers)
