"""The `stretto` command: what it says to wrong words."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gateway.__main__ import main


@pytest.mark.parametrize(
    ("words", "usage", "advice"),
    [
        ("talk Hello. --uri ws://127.0.0.1:9", "usage: stretto talk", "did you mean --url?"),
        ("serve --prot=9000", "usage: stretto serve", "did you mean --port?"),
        ("talk Hello there.", "usage: stretto talk", "words that belong together want quotes"),
        ("bench --zzz", "usage: stretto bench", "not known here: --zzz"),
    ],
)
def test_an_unknown_word_is_told_with_the_usage_of_its_command(
    words: str, usage: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said.startswith(usage)
    assert said.rstrip().endswith(advice)


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("stretto ")


def test_a_reader_that_has_seen_enough_is_no_fault() -> None:
    command = [sys.executable, "-m", "gateway", "check", "vllm serve m --enforce-eager --max-seq-len 8"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as checking:
        assert checking.stdout is not None
        assert checking.stderr is not None
        checking.stdout.close()
        assert checking.stderr.read() == b""
    assert checking.returncode == 141


def test_ctrl_c_while_the_commands_load_ends_without_a_word() -> None:
    """A module that stands in the way of the first import sends the signal that a terminal would."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Key:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'gateway.bench':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Key())\n"
        "sys.argv = ['stretto', 'check']\n"
        "runpy.run_module('gateway', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_without_a_command_it_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "run the gateway and its page on one port" in capsys.readouterr().err
