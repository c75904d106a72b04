"""`stretto check` of files that are no settings: which kind it is, and what is wrong in which line."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from gateway import check
from gateway.config import line_of, lines_of

ROOT = Path(__file__).parents[2]


def run(path: Path) -> int:
    parser = argparse.ArgumentParser()
    check.add_arguments(parser)
    return check.run(parser.parse_args([str(path), "--engines", "fake"]))


def written(folder: Path, text: str, name: str = "file.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


TEXT = '''
a = 1
[emotions.happy] # a header
rate = 1.06

[voices."edge/x"]
languages = [
  "en",
  "[zh]",
]
styles = { happy = "c" }
text = """
[not.a.header]
x = 1
"""
after = 2
[[limit]]
figure = "x"
[[limit]]
[[limit.sub]]
z = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 2),
        (("emotions", "happy"), 3),
        (("emotions", "happy", "rate"), 4),
        (("voices", "edge/x", "languages", 1), 7),
        (("voices", "edge/x", "styles", "happy"), 11),
        (("voices", "edge/x", "after"), 16),
        (("limit", 0, "figure"), 18),
        (("limit", 1), 19),
        (("limit", 1, "maximum"), 19),
        (("limit", 1, "sub", 0, "z"), 21),
        (("not", "a"), None),
    ],
)
def test_a_key_is_found_in_its_line(path: tuple[str | int, ...], line: int | None) -> None:
    assert line_of(lines_of(TEXT), path) == line


@pytest.mark.parametrize("name", ["voices.toml", "load/short.toml", "load/drain.toml", "load/soak.toml"])
def test_what_we_ship_is_valid_and_recognized(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(ROOT / "configs" / name) == 0
    said = capsys.readouterr().out
    assert said.startswith("ok   voice table: " if name == "voices.toml" else "ok   limits of a load: ")


def test_everything_wrong_with_a_voice_table_is_told_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        '[emotions.hapy]\nrate = 1.1\n[emotions.sad]\nrate = 9\npitch = 1\n[voices.joe]\n[voices."edge/x"]\n'
        'languages = "en"\nstyles = {hapy = "c"}\n[voices."nova/y"]\n[voice]\n'
    )
    path = written(tmp_path, text)
    assert run(path) == 2
    said = capsys.readouterr()
    expected = [
        "line 1: emotions.hapy is unknown; expected one of neutral, happy",
        "line 4: emotions.sad.rate got 9, expected `float` <= 2.0",
        "line 5: emotions.sad.pitch is unknown; expected one of instructions, pitch_st, rate, volume; did you mean pitch_st?",
        "line 6: voices.joe is no voice; got 'joe', expected \"ENGINE/NAME\"",
        "line 8: voices.\"edge/x\".languages got 'en', expected `array`",
        'line 9: voices."edge/x".styles.hapy is unknown',
        "line 11: voice is unknown; expected one of emotions, voices; did you mean voices?",
    ]
    lines = said.err.splitlines()
    for line, words in zip(lines, expected, strict=False):
        assert f"FAIL voice table: {path}, {words}" in line
    assert lines[-1] == "7 fault(s)"
    assert "line 10" in said.out
    assert "counts only where settings have [tts.servers.nova]" in said.out


def test_everything_wrong_with_limits_is_told_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        '[[limit]]\nfigure = "first_audo.p99"\nmax = 600\n[[limit]]\nfigure = "failed"\n[[limit]]\nmax = 1\n'
        '[[limit]]\nfigure = "failed"\nmax = "none"\n[[limit]]\nfigure = "failed"\nmin = 2\nmax = 1\n'
        '[[limit]]\nfigure = "failed"\nmaximum = 1\n'
    )
    path = written(tmp_path, text)
    assert run(path) == 2
    expected = [
        "line 1: [[limit]] names an unknown figure 'first_audo.p99'; expected errors.CODE or one of asked, ",
        "line 4: [[limit]] has neither max nor min",
        "line 6: [[limit]] lacks figure",
        "line 10: [[limit]].max got 'none', expected `float | null`",
        "line 11: [[limit]] can never be kept: got min 2 above max 1",
        "line 17: [[limit]].maximum is unknown; expected one of figure, guests, max, min; did you mean max",
    ]
    lines = capsys.readouterr().err.splitlines()
    assert "did you mean first_audio.p99" in lines[0]
    assert lines[-1] == f"{len(expected)} fault(s)"
    for line, words in zip(lines, expected, strict=False):
        assert f"FAIL limits of a load: {path}, {words}" in line


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        ("[project]\nname = 'x'", "pyproject.toml", "is none of Stretto's files: it has project; expected settings"),
        ('{"a": 1}', "a.json", "is not TOML (its name says JSON)"),
        ("services:\n  a: b", "compose.yaml", "is not TOML (its name says YAML)"),
        ("[[limits]]\nfigure = 'failed'", "l.toml", "limits is unknown; expected one of limit; did you mean limit?"),
        ("limit = []", "l.toml", "expected at least one [[limit]]"),
        ("emotions = 1\nvoices = 2", "v.toml", "got 1, expected tables [emotions.NAME]"),
    ],
)
def test_another_file_is_told_what_it_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, name: str, words: str) -> None:
    assert run(written(tmp_path, text, name)) == 2
    assert words in capsys.readouterr().err


def test_a_folder_and_a_file_that_is_no_text_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 2
    assert "is a folder; expected a file" in capsys.readouterr().err
    (tmp_path / "a.wav").write_bytes(b"RIFF\xff\xfe")
    assert run(tmp_path / "a.wav") == 2
    assert "is no text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[session]\nidle_s = 1\n[server]\nprot = 1", "line 4"),
        ('[server]\n# x\nport = "x"', "line 3"),
        ('[personas.captain]\ninstructions = "x"\nvoise = "y"', "line 3"),
        ("[session]\ntext_bytes = 70000", "line 2"),
    ],
)
def test_wrong_settings_are_told_with_their_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, line: str) -> None:
    path = written(tmp_path, text)
    assert run(path) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"({path}, {line})")
