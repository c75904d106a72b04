"""The page's modules outside a browser: their own tests, and the client in Node against a real gateway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

from engine.fake import speech_ms
from tests.browser.serving import REPLY, ROOT, gateway

CONVERSATION = """
import { connect } from "./web/client.js";
import { ticketsFor } from "./web/entering.js";
const session = await connect(process.argv[1], { ticket: ticketsFor(process.argv[1], () => "open-sesame") });
const reply = await session.text("Tell me something about the sea.");
let n_bytes = 0;
const segments = [];
await Promise.all([
  (async () => { for await (const segment of reply.segments()) segments.push(segment.text); })(),
  (async () => {
    for await (const { data, pts_ms } of reply.audio()) {
      n_bytes += data.length;
      session.reportPlayout(reply.turn, pts_ms);
    }
    session.reportPlayout(reply.turn, n_bytes / 48, true);
  })(),
]);
const second = await session.say("Good bye, and thank you for listening.");
for await (const event of second) if (event.type === "audio") { await second.cancel(); break; }
const { status } = await second.done;
session.close();
console.log(JSON.stringify({ segments, n_bytes, first: (await reply.done).status, second: status }));
"""


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        loud = "NO NODE: node is missing, so the page's modules were NOT tested (Node 20 or newer)"
        if os.environ.get("CI") == "true":
            pytest.fail(loud)
        pytest.skip(loud)
    return found


def test_the_modules_pass_their_own_tests(node: str) -> None:
    done = subprocess.run([node, "--test", "tests/web/"], cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_conversation_from_node(node: str) -> None:
    with gateway(STRETTO_KEYS="open-sesame") as port:
        done = subprocess.run(
            [node, "--experimental-websocket", "--input-type=module", "-e", CONVERSATION, f"ws://127.0.0.1:{port}/v1/voice"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    heard = json.loads(done.stdout)
    assert "".join(heard["segments"]) == REPLY
    assert len(heard["segments"]) >= 2
    assert heard["n_bytes"] >= 0.9 * speech_ms(REPLY) * 48
    assert (heard["first"], heard["second"]) == ("completed", "interrupted")
