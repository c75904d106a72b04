"""No decoder breaks on what strangers send: sound, or a plain refusal. A longer run: `make fuzz`."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit import decoder_fuzz


@pytest.mark.parametrize("name", list(decoder_fuzz.FUZZES))
def test_a_decoder_gives_sound_or_says_that_it_is_none(name: str) -> None:
    """In a process of its own: a decoder that writes where it must not would end these tests with it."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.unit.decoder_fuzz", name, "--seconds", "0.6", "--seed", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-2]) >= 20, "inputs were decoded"
