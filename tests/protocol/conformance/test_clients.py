"""The pinned clients of OpenAI, unmodified, have the same conversations with us, and every event fits their types and the order rules.

They live in environments of their own (`scripts/setup-clients.sh`). Where one is missing its tests are skipped, and said so; with CI=true
they fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.fake import hum, speech_ms
from tests.protocol.order_rules import OrderRules
from tests.running import Running, gateway

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
PYTHON = ROOT / ".venv-clients/bin/python"
HEARD = ["Please talk at length.", "Hello there, that will do."]
QUICK = {"STRETTO_KEYS": "secret", "STRETTO_FAKE__TTFT_MS": "20", "STRETTO_FAKE__ITL_MS": "5"}
EARS = {
    "STRETTO_ASR__ENGINE": "fake",
    "STRETTO_LISTEN__VAD": "fake",
    "STRETTO_LISTEN__END_OF_TURN": "fake",
    "STRETTO_HEARING__PARTIAL_MS": "300",
    "STRETTO_FAKE__HEARD": json.dumps(HEARD),
}
TOLD = {
    "secret": "Hello there. Nice to meet you.",
    "text": "Hello there. Nice to meet you.",
    "audio": "Hello there. Nice to meet you.",
    "tool": "Let me look. It is sunny in Paris.",
}
FIRST = "This is sentence number one of a rather long reply."
Outcome = dict[str, Any]  # Any: JSON of a client's report

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with gateway(QUICK, module="tests.doubles.scripted_gateway") as started:
        yield started


@pytest.fixture(scope="module")
def listening() -> Iterator[Running]:
    with gateway(QUICK | EARS, module="tests.doubles.scripted_gateway") as started:
        yield started


@pytest.fixture(scope="module")
def wavs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A question and an interruption: the voice's hum, 24 kHz."""
    folder = tmp_path_factory.mktemp("spoken")
    paths = [folder / "question.wav", folder / "interruption.wav"]
    for path, length_ms in zip(paths, (1200, 1500), strict=True):
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(24_000)
            file.writeframes(hum("fake-en", 24_000, 0, length_ms))
    return list(map(str, paths))


def missing(what: str) -> None:
    text = f"{what} is missing (scripts/setup-clients.sh installs it): /v1/realtime was NOT tried with it"
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)


def python_client(script: str, *arguments: str) -> dict[str, Outcome]:
    if not PYTHON.exists():
        missing("the environment of the Python clients")
    return outcomes([str(PYTHON), str(HERE / script), *arguments])


def node_client(script: str, package: str, *arguments: str) -> dict[str, Outcome]:
    node = shutil.which("node")
    if node is None or not (HERE / "node/node_modules" / package / "package.json").exists():
        missing(f"node, or npm {package},")
    return outcomes([node or "", str(HERE / "node" / script), *arguments])


def outcomes(command: list[str]) -> dict[str, Outcome]:
    """Run a client; its reports by scenario."""
    environment = {name: value for name, value in os.environ.items() if name not in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PYTHONPATH")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=environment, check=False)
    assert done.returncode == 0, f"{command[1]} ended with {done.returncode}:\n{done.stderr[-3000:]}"
    return {report["scenario"]: report for report in map(json.loads, done.stdout.splitlines())}


def check_order(outcome: Outcome) -> None:
    rules = OrderRules()
    for event in outcome["events"]:
        rules.check(event)


def check_spoken(outcome: Outcome) -> None:
    """A spoken question, its answer talked over, and the answer to that."""
    events = outcome["events"]

    def of(kind: str) -> list[Outcome]:
        return [event for event in events if event["type"] == kind]

    transcripts = of("conversation.item.input_audio_transcription.completed")
    assert [event["transcript"] for event in transcripts] == HEARD
    assert outcome.get("heard", HEARD) == HEARD, "as the SDK's own history has it"
    for kind in ("speech_started", "speech_stopped", "committed"):
        found = of(f"input_audio_buffer.{kind}")
        assert [event["item_id"] for event in found] == [event["item_id"] for event in transcripts], kind
    stopped, answered = (event["response"] for event in of("response.done"))
    assert (stopped["status"], stopped["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert answered["status"] == "completed"
    assert answered["output"][0]["content"][0]["transcript"] == outcome["text"] == TOLD["audio"]
    kinds = [event["type"] for event in events]
    barge_in = len(kinds) - 1 - kinds[::-1].index("input_audio_buffer.speech_started")
    assert "response.output_audio.delta" not in kinds[barge_in : kinds.index("response.done")]
    assert len(of("conversation.item.truncated")) == 1
    assert 0 < of("conversation.item.truncated")[0]["audio_end_ms"] < 6000


def check_telephone(outcome: Outcome) -> None:
    """A spoken reply, and another one to the silence behind it."""
    check_order(outcome)
    assert not outcome["faults"]
    assert (outcome["status"], outcome["text"]) == ("completed", "Yes.")
    replies_ms = speech_ms(TOLD["audio"]) + speech_ms("Yes.")
    assert outcome["n_audio_bytes"] == pytest.approx(replies_ms / 1.5 * 8, rel=0.1), "bytes of G.711 at one and a half times the speed"


def check_conversations(found: dict[str, Outcome]) -> None:
    """What every client must have come to."""
    for scenario, outcome in found.items():
        assert not outcome["faults"], (scenario, outcome["faults"])
        assert scenario not in TOLD or outcome["text"] == TOLD[scenario], scenario
        assert (outcome["n_audio_bytes"] > 0) is (scenario not in ("text", "secret", "fault")), scenario
        if "events" in outcome:
            check_order(outcome)
    assert FIRST.startswith(found["cancel"]["text"].strip()[:20])
    assert "number six" not in found["cancel"]["text"], "the rest of six sentences never came"


def test_openai_for_python(running: Running) -> None:
    """Its own pydantic types judge every event, strictly; the SDK itself would let misfits pass."""
    found = python_client("openai_py.py", f"{running.http_url}/v1", "secret")
    assert set(found) == {"text", "secret", "audio", "tool", "cancel", "out_of_band", "fault"}
    check_conversations(found)
    assert {name: outcome["status"] for name, outcome in found.items() if name != "fault"} == {
        "text": "completed",
        "secret": "completed",
        "audio": "completed",
        "tool": "completed",
        "cancel": "cancelled",
        "out_of_band": "completed",
    }


def test_openai_agents_for_python(running: Running) -> None:
    url = f"ws://127.0.0.1:{running.port}/v1/realtime?model=gpt-realtime"
    found = python_client("agents_py.py", url, "secret")
    assert set(found) == {"text", "audio", "tool", "cancel"}
    check_conversations(found)
    assert found["tool"]["calls"] == ["Paris"]
    assert "audio_interrupted" in found["cancel"]["seen"]


def test_openai_for_node(running: Running) -> None:
    found = node_client("openai.mjs", "openai", str(running.port), "secret")
    assert set(found) == {"text", "audio", "tool", "cancel", "out_of_band"}
    check_conversations(found)
    assert found["cancel"]["status"] == "cancelled"


def test_openai_agents_for_node(running: Running) -> None:
    url = f"ws://127.0.0.1:{running.port}/v1/realtime?model=gpt-realtime"
    found = node_client("agents.mjs", "@openai/agents-realtime", url, "secret")
    assert set(found) == {"text", "audio", "tool", "cancel"}
    check_conversations(found)
    assert found["tool"]["calls"] == ["Paris"]
    assert not [event for outcome in found.values() for event in outcome["demoted"]]


@pytest.mark.parametrize(
    ("client", "does_play"),
    [("openai_py.py", False), ("agents_py.py", True), ("openai.mjs", False), ("agents.mjs", True)],
)
def test_a_spoken_question_its_answer_talked_over_and_the_answer_to_that(
    listening: Running, wavs: list[str], client: str, does_play: bool
) -> None:
    url = f"ws://127.0.0.1:{listening.port}/v1/realtime?model=gpt-realtime"
    match client:
        case "openai_py.py":
            found = python_client(client, f"{listening.http_url}/v1", "secret", *wavs)
        case "agents_py.py":
            found = python_client(client, url, "secret", *wavs)
        case "openai.mjs":
            found = node_client(client, "openai", str(listening.port), "secret", *wavs)
        case _:
            found = node_client(client, "@openai/agents-realtime", url, "secret", *wavs)
    if client == "openai_py.py":
        check_telephone(found["telephone"])
    outcome = found["spoken"]
    assert not outcome["faults"]
    assert not outcome.get("demoted")
    assert not does_play or "audio_interrupted" in outcome["seen"], "its player was stopped by the second utterance"
    check_order(outcome)
    check_spoken(outcome)


def test_a_wrong_key_is_refused_as_these_clients_expect(running: Running) -> None:
    if not PYTHON.exists():
        missing("the environment of the Python clients")
    command = [str(PYTHON), str(HERE / "openai_py.py"), f"{running.http_url}/v1", "wrong"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "401" in done.stderr
