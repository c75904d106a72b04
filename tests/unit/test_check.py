"""`stretto check`: what it finds, and its exit codes."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

import pytest

from gateway import check
from gateway.config import Settings
from gateway.config import check as settings_from

FAKE = {"llm": {"engine": "fake"}, "tts": {"engines": ["fake"]}}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("STRETTO_KEYS", "STRETTO_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return check.run(parser.parse_args(arguments))


def write(folder: Path, text: str) -> str:
    path = folder / "stretto.toml"
    path.write_text(text, "utf-8")
    return str(path)


def findings(tree: dict[str, object]) -> dict[str, list[check.Finding]]:
    found: dict[str, list[check.Finding]] = {}
    for finding in check.examine(settings_from({**FAKE, **tree})):
        found.setdefault(finding.topic, []).append(finding)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_good_configuration_would_run(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(cache, f'cache_dir = "{cache}"\n[server]\nport = {free_port()}\nkeys = ["0123456789abcdef-secret"]')
    assert run(config, "--engines", "fake") == 0
    said = capsys.readouterr().out
    assert "scripted model (fake" in said
    assert "fake-en (en)" in said
    assert "1 key(s)" in said
    assert "secret" not in said, "keys are never printed"
    assert said.endswith("`stretto serve` would start\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[server]\nprot = 1", "unknown key server.prot"),
        ("[server\n", "is not TOML"),
        ('[server]\nport = "x"', "server.port"),
        ('[server]\nhost = "0.0.0.0"', "reachable from other machines"),
    ],
)
def test_wrong_settings_are_exit_code_2(cache: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    assert run(write(cache, text)) == 2
    assert words in capsys.readouterr().err


def test_a_missing_file_is_exit_code_2(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(cache / "none.toml")) == 2
    assert "cannot read " in capsys.readouterr().err


def test_a_taken_port_is_exit_code_1(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        assert run(write(cache, f'cache_dir = "{cache}"\n[server]\nport = {port}'), "--engines", "fake") == 1
    said = capsys.readouterr().out
    assert f"cannot listen on 127.0.0.1:{port}" in said
    assert "1 fault(s): `stretto serve` would not start" in said


def test_engines_that_cannot_be_built_are_faults(cache: Path) -> None:
    found = findings({"cache_dir": str(cache), "server": {"port": 0}, "tts": {"engines": ["piper"]}})
    assert [finding.kind for finding in found["engines"]] == ["fault"]


def test_a_model_folder_for_vllm_is_looked_at(cache: Path) -> None:
    llm = {"engine": "vllm", "model": str(cache / "no-such-model")}
    found = findings({"cache_dir": str(cache), "server": {"port": 0}, "llm": llm})
    assert any(f.kind == "fault" and "does not exist" in f.text for f in found["vLLM"])


def test_a_persona_with_an_unknown_voice_is_a_fault(cache: Path) -> None:
    personas = {"good": {"instructions": "x", "voice": "fake-en"}, "bad": {"instructions": "x", "voice": "nobody"}}
    found = findings({"cache_dir": str(cache), "server": {"port": 0}, "personas": personas})
    faults = [finding.text for finding in found["voices"] if finding.kind == "fault"]
    assert faults == ["persona bad wants 'nobody', which is none of them"]


def test_an_unreadable_certificate_is_a_fault(cache: Path) -> None:
    (cache / "broken.pem").write_text("no certificate")
    server = {"port": 0, "tls_certificate": str(cache / "broken.pem"), "tls_key": str(cache / "none.pem")}
    (found,) = findings({"cache_dir": str(cache), "server": server})["TLS"]
    assert found.kind == "fault"
    assert found.text == f"server.tls_certificate: {cache}/broken.pem has 14 bytes and no certificate; expected one in PEM form"


def test_a_key_file_that_is_missing_is_named(cache: Path) -> None:
    (cache / "fine.pem").write_text("-----BEGIN CERTIFICATE-----")
    server = {"port": 0, "tls_certificate": str(cache / "fine.pem"), "tls_key": str(cache / "none.pem")}
    (found,) = findings({"cache_dir": str(cache), "server": server})["TLS"]
    assert found.text == f"server.tls_key: cannot read {cache}/none.pem: No such file or directory"


@pytest.mark.parametrize(
    ("tree", "extra"),
    [
        ({"moderation": {"url": "http://127.0.0.1:9001/"}}, "http"),
        ({"tracing": {"endpoint": "http://127.0.0.1:4318/v1/traces"}}, "otel"),
        ({"session": {"store_url": "redis://127.0.0.1:6379/0"}}, "redis"),
    ],
)
def test_a_package_that_a_setting_needs_is_a_fault(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tree: dict[str, object], extra: str
) -> None:
    assert "packages" not in findings(tree), "all of them are among the tests' own packages"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (finding,) = findings(tree)["packages"]
    assert (finding.kind, f"stretto[{extra}]" in finding.text) == ("fault", True)


def test_what_hooks_need_and_is_not_there_is_a_fault(cache: Path) -> None:
    url = "http://127.0.0.1:9001/"
    (finding,) = findings({"moderation": {"url": url, "key_variable": "NOT_SET_HERE"}})["environment"]
    assert finding.text == "moderation.key_variable names NOT_SET_HERE, which is not set"
    (finding,) = findings({"usage": {"file": str(cache / "nowhere" / "usage.jsonl")}})["files"]
    assert (finding.kind, finding.text.startswith("usage.file ")) == ("fault", True)
    assert "files" not in findings({"usage": {"file": str(cache / "usage.jsonl")}, "capture": {"folder": str(cache / "new" / "folder")}})


def test_an_open_address_is_noted(cache: Path) -> None:
    found = findings({"cache_dir": str(cache), "server": {"port": 0, "host": "0.0.0.0", "allow_open": True, "keys": ["short"]}})
    assert [finding.kind for finding in found["TLS"]] == ["note"]
    assert ["note" in finding.kind for finding in found["access"]] == [False, True]


def test_named_keys_are_keys(cache: Path) -> None:
    named = {"kiosk": {"key": "short"}, "app": {"key": "long-enough-not-to-be-guessed"}}
    found = findings({"cache_dir": str(cache), "keys": named})["access"]
    assert [(finding.kind, finding.text.split()[0]) for finding in found] == [("fine", "2"), ("note", "1")]


def test_nothing_is_left_open(cache: Path) -> None:
    port = free_port()
    settings = settings_from({**FAKE, "cache_dir": str(cache), "server": {"port": port}})
    assert isinstance(settings, Settings)
    for _ in range(2):
        assert next(f.kind for f in check.examine(settings) if f.topic == "address") == "fine"


def test_a_pasted_vllm_command_is_judged_and_turned_into_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--vllm", "python -m vLLM.entrypoints.api_server --model org/m --max-seq-len 8192 --enforce-eager") == 1
    said = capsys.readouterr().out
    assert "never a vLLM flag" in said
    assert "21.6 -> 87.7 ms" in said
    assert "context_tokens = 8192" in said
    assert run("--vllm", "vllm serve org/m --tensor-parallel-size 2") == 0
    assert run("vllm serve org/m --tensor-parallel-size 2") == 0
    assert run("--vllm", "ls -l") == 2


def test_what_vllm_lacks_here_is_found_before_it_is_loaded(cache: Path) -> None:
    (cache / "model").mkdir()
    found = findings({"cache_dir": str(cache), "llm": {"engine": "vllm", "model": str(cache / "model")}})
    assert any(finding.kind == "fault" and "config.json" in finding.text for finding in found["vLLM"])


def test_a_profile_is_checked_on_a_machine_without_vllm(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *_: None if name == "vllm" else object())
    tables = '[llm]\nengine = "vllm"\nmodel = "org/m"\n[llm.vllm]\ntensor_parallel_size = "two"\n'
    text = f'cache_dir = "{cache}"\n{tables}[server]\nport = {free_port()}'
    assert run(write(cache, text)) == 1
    assert "llm.vllm.tensor_parallel_size = 'two': got 'two', expected a whole number" in capsys.readouterr().out
