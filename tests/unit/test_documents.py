"""What is written about the protocol is what the code does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gateway import errors
from gateway.events import CLIENT_EVENTS, SERVER_EVENTS

ROOT = Path(__file__).parents[2]
PROTOCOL = (ROOT / "docs" / "protocol.md").read_text("utf-8")


def test_the_asyncapi_document_is_what_the_events_say() -> None:
    done = subprocess.run([sys.executable, "scripts/asyncapi.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_protocol_page_names_only_events_that_exist() -> None:
    known = set(CLIENT_EVENTS) | set(SERVER_EVENTS)
    named = set(re.findall(r"^\s{0,60}([a-z]+\.[a-z]+) \{", PROTOCOL, re.MULTILINE))
    assert named, "the page shows sequences"
    assert named <= known


def test_every_close_code_has_its_line() -> None:
    codes = {value for name, value in vars(errors).items() if name.startswith("CLOSE_")}
    listed = {int(code) for code in re.findall(r"^\| (\d{4}) \|", PROTOCOL, re.MULTILINE)}
    assert codes <= listed
