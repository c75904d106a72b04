"""Variables of the environment: which are settings, which are others', and which are slips that somebody must be told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.__main__ import main
from gateway.config import OTHERS, ConfigError, check, is_setting, load, unread

ROOT = Path(__file__).parents[2]
SHIPPED = ("gateway", "engine", "docker", "configs", "scripts", "docs", "Makefile", "README.md", ".ci")


def test_settings_at_the_top_are_read_as_text() -> None:
    settings = load(None, {"STRETTO_LANGUAGE": '"zh"', "STRETTO_INSTRUCTIONS": "42", "STRETTO_CACHE_DIR": "/c"})
    assert (settings.language, settings.instructions, settings.cache_dir) == ("zh", "42", "/c")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("STRETTO_SESION__MAX", "did you mean STRETTO_SESSION__MAX_SESSIONS?"),
        ("STRETTO_SERVR__PORT", "did you mean STRETTO_SERVER__PORT?"),
        ("STRETTO_SERVER__PROT", "did you mean STRETTO_SERVER__PORT?"),
        ("STRETTO__SERVER__PORT", "did you mean STRETTO_SERVER__PORT?"),
        ("STRETTO_PERSONAS__A__INSTRUCTION", "did you mean STRETTO_PERSONAS__NAME__INSTRUCTIONS?"),
        ("STRETTO_LANGUAGE__X", "did you mean STRETTO_LANGUAGE?"),
        ("STRETTO_SERVER__PORT__X", "did you mean STRETTO_SERVER__PORT"),
        ("STRETTO_SERVER__ZZZ", "valid here: allow_open"),
        ("STRETTO_FOO__BAR", "the sections are asr"),
    ],
)
def test_two_underscores_and_no_setting_stop_the_start_with_the_nearest_name(name: str, advice: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(None, {name: "1"})
    assert f"from the variable {name}" in str(refused.value)
    assert advice in str(refused.value)


def test_a_name_of_ones_own_is_no_slip() -> None:
    names = {
        "STRETTO_PERSONAS__CAPTAIN__INSTRUCTIONS": "Speak like one.",
        "STRETTO_TTS__SERVERS__A": '{url = "http://127.0.0.1/v1", voices = [{name = "x"}]}',
        "STRETTO_TTS__SERVERS__A__EXTRA__SPEED": "2",
        "STRETTO_LLM__VLLM__MAX_NUM_SEQS": "8",
    }
    settings = load(None, names)
    assert settings.personas["captain"].instructions == "Speak like one."
    assert settings.tts.servers["a"].extra == {"speed": 2}
    assert settings.llm.vllm == {"max_num_seqs": 8}


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("STRETTO_LANGAUGE", "did you mean STRETTO_LANGUAGE"),
        ("STRETTO_PORT", "did you mean STRETTO_SERVER__PORT"),
        ("STRETTO_KEYZ", "did you mean STRETTO_KEYS?"),
        ("STRETO_KEYS", "did you mean STRETTO_KEYS?"),
        ("STRETTO_LOGLEVEL", "did you mean STRETTO_LOG__LEVEL?"),
        ("STRETTO_TTS_EDGE_PROXY", "expected STRETTO_TTS__EDGE__PROXY, with two underscores"),
        ("STRETTO_CONFIG", "no setting has that name"),
    ],
)
def test_a_variable_that_nobody_reads_is_told_with_the_nearest_name(name: str, advice: str) -> None:
    (told,) = unread({name: "x"})
    assert told.startswith(f"{name} is not read; ")
    assert advice in told


def test_what_kubernetes_and_our_own_scripts_set_is_not_told() -> None:
    links = {
        "STRETTO_SERVICE_HOST": "10.0.0.1",
        "STRETTO_SERVICE_PORT_HTTP": "80",
        "STRETTO_METRICS_SERVICE_PORT": "80",
        "STRETTO_PORT": "tcp://10.0.0.1:80",
        "STRETTO_PORT_80_TCP_ADDR": "10.0.0.1",
        "STRING_LENGTH": "1",
        "HOME": "/root",
    }
    assert unread(links | dict.fromkeys(OTHERS, "x")) == ()


def test_a_variable_that_the_settings_name_is_read() -> None:
    settings = check({"moderation": {"key_variable": "STRETTO_MODERATION_KEY"}})
    assert unread({"STRETTO_MODERATION_KEY": "x"}, settings) == ()
    assert unread({"STRETTO_MODERATION_KEY": "x"})


def test_every_variable_of_what_we_ship_is_a_setting_or_in_the_table() -> None:
    paths = [path for name in SHIPPED for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).rglob("*"))]
    kinds = {".py", ".md", ".sh", ".yaml", ".yml", ".toml", ""}
    generated = {ROOT / line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line.startswith("/docs/")}
    texts = {path: path.read_text("utf-8") for path in paths if path.is_file() and path.suffix in kinds and path not in generated}
    table = ROOT / "gateway/config/environment.py"
    found = {name for path, text in texts.items() if path != table for name in re.findall(r"\bSTRETTO_[A-Z][A-Z_]*[A-Z]\b", text)}
    assert {name for name in found if not is_setting(name)} <= OTHERS.keys()
    in_tests = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    assert [name for name in OTHERS if name not in found and name not in in_tests] == [], "the table names what nobody reads"


def test_a_start_tells_before_it_does_anything_else(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("STRETTO_LANGAUGE", "de")
    monkeypatch.setenv("STRETTO_LLM__MODEL", "/nowhere/to/be/found.gguf")
    monkeypatch.setenv("STRETTO_LLM__ENGINE", "llamacpp")
    assert main(["serve", "--port", "0"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("WARNING settings: STRETTO_LANGAUGE is not read; did you mean STRETTO_LANGUAGE")
