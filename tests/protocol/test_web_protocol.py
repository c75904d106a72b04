"""The page's vocabulary (web/protocol.js) is the gateway's (gateway/events.py, gateway/errors.py)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast, get_args

import msgspec
import pytest

from gateway import errors, events

ROOT = Path(__file__).parents[2]
PRINT_TABLES = "import(process.argv[1]).then((tables) => console.log(JSON.stringify(tables)))"
PARTS: dict[str, type[msgspec.Struct]] = {
    "resume": events.Resume,
    "history": events.HistoryItem,
    "audio_in": events.AudioIn,
    "audio_out": events.AudioOut,
    "endpointing": events.Endpointing,
    "limits": events.Limits,
    "voices": events.VoiceInfo,
    "words": events.Word,
    "usage": events.UsageInfo,
    "timeline": events.Timeline,
}


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:  # Any: JSON of the module's exports
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI") == "true":
            pytest.fail("node is missing: the page's vocabulary was NOT compared with the gateway's")
        pytest.skip("node is missing: the page's vocabulary was NOT compared with the gateway's")
    printed = subprocess.run(
        [node, "-e", PRINT_TABLES, (ROOT / "web/protocol.js").as_uri()], check=True, capture_output=True, text=True, timeout=30
    )
    return cast(dict[str, Any], json.loads(printed.stdout))


def fields_of(struct: type[msgspec.Struct]) -> list[str]:
    """Names as the page writes them: a field with a default ends in "?"."""
    return sorted(field.encode_name + ("" if field.required else "?") for field in msgspec.structs.fields(struct))


def test_client_events_and_their_fields_are_the_gateways(tables: dict[str, Any]) -> None:
    assert {tag: sorted(fields) for tag, fields in tables["CLIENT_EVENTS"].items()} == {
        tag: fields_of(event) for tag, event in events.CLIENT_EVENTS.items()
    }


def test_server_events_and_their_fields_are_the_gateways(tables: dict[str, Any]) -> None:
    assert {tag: sorted(fields) for tag, fields in tables["SERVER_EVENTS"].items()} == {
        tag: fields_of(event) for tag, event in events.SERVER_EVENTS.items()
    }


def test_nested_fields_are_the_gateways(tables: dict[str, Any]) -> None:
    assert {name: sorted(fields) for name, fields in tables["PARTS"].items()} == {name: fields_of(part) for name, part in PARTS.items()}


def test_closed_sets_are_the_gateways(tables: dict[str, Any]) -> None:
    assert tuple(tables["TURN_STATUSES"]) == get_args(events.TurnStatus)
    assert tuple(tables["SEGMENT_STATUSES"]) == get_args(events.SegmentStatus)
    assert tuple(tables["INTERRUPT_REASONS"]) == get_args(events.InterruptReason)


def test_close_codes_are_the_gateways(tables: dict[str, Any]) -> None:
    assert tables["CLOSE"] == {name.removeprefix("CLOSE_"): code for name, code in vars(errors).items() if name.startswith("CLOSE_")}
