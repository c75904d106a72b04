"""The audit of dependencies says only what was looked up."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLEAN = {"name": "one", "version": "1.0", "vulns": []}
KNOWN = {"name": "two", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "two", "skip_reason": "not found"}


def audited(tmp_path: Path, answer: Any, *options: str) -> tuple[int, str]:  # Any: what the tool would print, or a status
    """Run the audit with a tool that answers so, for each package that it is asked about; the status and what was printed."""
    tool = tmp_path / "pip-audit"
    said = json.dumps(answer if isinstance(answer, list) else [])
    lines = [
        f"#!{sys.executable}",
        "import json, sys",
        "asked = [line.split('==')[0] for line in open(sys.argv[2]).read().split()]",
        f"known = {said}",
        "sys.exit('no address') if not known else print(json.dumps({'dependencies': [p for p in known if p['name'] in asked]}))",
    ]
    tool.write_text("\n".join(lines), "utf-8")
    tool.chmod(tool.stat().st_mode | stat.S_IEXEC)
    (tmp_path / "lock.txt").write_text("# pins\none==1.0\ntwo==2.0\n", "utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), str(tool), str(tmp_path / "lock.txt"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("answer", "status", "told"),
    [
        ([CLEAN, KNOWN | {"vulns": []}], 0, "2 pinned packages, 0 with known vulnerabilities"),
        ([CLEAN, KNOWN], 1, "two 2.0: CVE-1"),
        ([CLEAN, SKIPPED], 2, "AUDIT NOT DONE"),
        ([CLEAN], 2, "AUDIT NOT DONE"),
        (None, 2, "no address"),
    ],
)
def test_only_packages_that_were_looked_up_count(tmp_path: Path, answer: Any, status: int, told: str) -> None:  # Any: as above
    assert (got := audited(tmp_path, answer))[0] == status
    assert told in got[1]


def test_without_a_network_the_build_goes_on_and_says_so_loudly(tmp_path: Path) -> None:
    status, said = audited(tmp_path, None, "--may-be-offline")
    assert status == 0
    assert "!! AUDIT NOT DONE" in said
    assert audited(tmp_path, [CLEAN, KNOWN], "--may-be-offline")[0] == 1, "what is known is never passed over"


def test_a_missing_tool_is_no_clean_bill(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), str(tmp_path / "nowhere")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
