#!/usr/bin/env python3
"""Asks pip-audit whether pinned packages have known vulnerabilities: `python scripts/audit.py PIP_AUDIT [LOCK] [--may-be-offline]`.

pip-audit calls a package that its service does not know "skipped", and a run that skipped everything a success; here only a package that
was really looked up counts. One package is asked about first. Exit status: 0 none known, 1 some known, 2 not audited (0 with
`--may-be-offline`, after a line that nobody overlooks).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 300
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)$", re.MULTILINE)


class NotAudited(Exception):
    """The service was not reached, or did not know a package."""


def audit(pip_audit: str, pins: list[str]) -> dict[str, list[str]]:
    """Package -> its known vulnerabilities, for those that have some. Raises `NotAudited`."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(pins) + "\n")
        listed.flush()
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
        command = [pip_audit, "-r", listed.name, *options]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotAudited(str(error)) from error
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError) as error:
        raise NotAudited(done.stderr.strip().rpartition("\n")[2][:200] or f"pip-audit ended with {done.returncode}") from error
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or len(packages) < len(pins):
        raise NotAudited(f"{len(skipped)} of {len(pins)} packages are not known to the service ({', '.join(skipped[:3])}, ...)")
    return {f"{package['name']} {package['version']}": [v["id"] for v in package["vulns"]] for package in packages if package["vulns"]}


def main() -> int:
    """Audit, and say what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pip_audit")
    parser.add_argument("lock", nargs="?", type=Path, default=ROOT / "requirements" / "lock.txt")
    parser.add_argument("--may-be-offline", action="store_true")
    options = parser.parse_args()
    pins = ["==".join(pin) for pin in PIN.findall(options.lock.read_text("utf-8"))]
    try:
        audit(options.pip_audit, pins[:1])
        found = audit(options.pip_audit, pins)
    except NotAudited as reason:
        print(f"!! AUDIT NOT DONE: nobody has looked for known vulnerabilities in {len(pins)} pinned packages: {reason}", file=sys.stderr)
        return 0 if options.may_be_offline else 2
    for package, ids in found.items():
        print(f"{package}: {', '.join(ids)}")
    print(f"{len(pins)} pinned packages, {len(found)} with known vulnerabilities")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
