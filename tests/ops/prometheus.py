"""A real Prometheus over a real gateway: its own port, storage in a temporary folder, and the shipped files at a test's pace."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "configs" / "prometheus"
RULE_FILES = (SHIPPED / "recording.yml", SHIPPED / "alerts.yml")
READY_S = 90.0
STOP_S = 60.0
LISTENS = re.compile(r'"?Listening on"? address=127\.0\.0\.1:(\d+)')
RANGE = re.compile(r"\[\d+m(?=[\]:])")


def rules_of(*paths: Path) -> list[dict[str, Any]]:  # Any: YAML
    """Every rule of the files, in order."""
    return [rule for path in paths for group in yaml.safe_load(path.read_text("utf-8"))["groups"] for rule in group["rules"]]


def quickened(text: str, range_s: int, for_s: int) -> str:
    """A rules file at a test's pace: evaluated every second, over `range_s`, pending for `for_s`.

    Expressions and thresholds are the file's own.
    """
    document = yaml.safe_load(text)
    for group in document["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule["expr"] = RANGE.sub(f"[{range_s}s", str(rule["expr"])).replace(":1m]", ":1s]")
            if "for" in rule:
                rule["for"] = f"{for_s}s"
    return str(yaml.safe_dump(document, sort_keys=False))


def configuration(folder: Path, target: str, key: str, *, interval_s: int = 1) -> Path:
    """The shipped prometheus.yml in `folder`, pointed at `target` (host:port) with `key`; its rules lie beside it."""
    document = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))
    document["global"] = {"scrape_interval": f"{interval_s}s", "evaluation_interval": f"{interval_s}s"}
    (folder / "key").write_text(key, "utf-8")
    gateway = next(job for job in document["scrape_configs"] if job["job_name"] == "stretto")
    gateway["authorization"]["credentials_file"] = str(folder / "key")
    gateway["static_configs"] = [{"targets": [target]}]
    written = folder / "prometheus.yml"
    written.write_text(yaml.safe_dump(document, sort_keys=False), "utf-8")
    return written


class Prometheus:
    """Its HTTP interface."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **fields: str) -> Any:  # Any: JSON
        """The `data` of an answer. Raises `AssertionError` with Prometheus' own words."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(fields)}"
        try:
            with urllib.request.urlopen(address, timeout=60) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{fields}: {json.load(error).get('error')}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:  # Any: JSON
        """The instant vector that `expression` has now."""
        found = self.get("query", query=expression)
        return list(found["result"]) if found["resultType"] == "vector" else []

    def firing(self) -> dict[str, dict[str, Any]]:  # Any: JSON
        """Alerts that fire, by name."""
        return {alert["labels"]["alertname"]: alert for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}


@contextlib.contextmanager
def prometheus(program: str, config: Path) -> Iterator[Prometheus]:
    """A running Prometheus; ended with the block."""
    log = config.parent / "prometheus.log"
    storage = config.parent / "storage"
    command = [program, f"--config.file={config}", f"--storage.tsdb.path={storage}", "--web.listen-address=127.0.0.1:0"]
    with log.open("w") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=stream)
    try:
        yield _ready(process, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> Prometheus:
    """Once it answers, on the port that the kernel gave it and its log tells."""
    ends_at = time.monotonic() + READY_S
    while time.monotonic() < ends_at and process.poll() is None:
        if told := LISTENS.search(log.read_text()):
            running = Prometheus(int(told[1]))
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{running.url}/-/ready", timeout=10):
                return running
        time.sleep(0.1)
    raise AssertionError(f"Prometheus was not ready within {READY_S} s; it said:\n{log.read_text()[-2000:]}")
