"""Settings -> engines. The only file that constructs them; what it chose and why is in `notes`, for the operator."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

from engine.api import EngineSetupError, Health, LanguageModel, Synthesizer
from engine.settings import EngineSettings

GPU_NODE = Path("/dev/nvidia0")


class Engines:
    """The model and the voices of one gateway, started and stopped together."""

    def __init__(self, model: LanguageModel, voices: Synthesizer, notes: tuple[str, ...]) -> None:
        self.model = model
        self.voices = voices
        self.notes = notes

    def health(self) -> dict[str, Health]:
        """Of each engine, without waiting."""
        return {"llm": self.model.health(), "tts": self.voices.health()}

    @property
    def is_ready(self) -> bool:
        """Whether turns can be answered."""
        return all(health.ready for health in self.health().values())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Started side by side, closed at the end. Raises `EngineSetupError`."""
        try:
            async with asyncio.TaskGroup() as starts:
                starts.create_task(self.model.start(), name="start model")
                starts.create_task(self.voices.start(), name="start voices")
        except BaseExceptionGroup as group:
            await self._close()
            raise _setup_error(group) from group
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        await asyncio.gather(self.model.close(), self.voices.close())


def _setup_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The operator's error in the group, or the group itself where it is our bug."""
    setup, _ = group.split(EngineSetupError)
    return setup.exceptions[0] if setup is not None else group


def build(settings: EngineSettings) -> Engines:
    """The engines that the settings and this machine ask for. Raises `EngineSetupError`."""
    model, why = _model(settings)
    voices, notes = _voices(settings)
    return Engines(model, voices, (f"language model: {model.name} ({why})", *notes))


def choose_model(settings: EngineSettings) -> tuple[str, str]:
    """Which language model engine runs, and why."""
    if settings.llm.engine != "auto":
        return settings.llm.engine, "llm.engine says so"
    if GPU_NODE.exists():
        return "vllm", "an NVIDIA GPU was found"
    return "llamacpp", "no NVIDIA GPU was found"


def _model(settings: EngineSettings) -> tuple[LanguageModel, str]:
    chosen, why = choose_model(settings)
    if chosen == "fake":
        from engine.fake import DEFAULT_REPLY, ScriptedModel

        fake = settings.fake
        return ScriptedModel([fake.reply or DEFAULT_REPLY], ttft_ms=fake.ttft_ms, itl_ms=fake.itl_ms), why
    raise EngineSetupError(f"the engine {chosen} cannot be built")


def _voices(settings: EngineSettings) -> tuple[Synthesizer, tuple[str, ...]]:
    from engine.tts.chain import VoiceChain

    engines = [_voice(name, settings) for name in settings.tts.engines]
    chain = VoiceChain(engines)
    notes = [f"voices: {', '.join(engine.name for engine in engines)}"]
    if not any("zh" in voice.languages for voice in chain.voices()):
        notes.append("no Chinese voice here: Chinese replies are captioned, not spoken")
    return chain, tuple(notes)


def _voice(name: str, settings: EngineSettings) -> Synthesizer:
    if name == "fake":
        from engine.fake import ScriptedVoice

        return ScriptedVoice(first_chunk_ms=settings.fake.tts_first_chunk_ms, rtf=settings.fake.tts_rtf)
    if name == "espeak":
        _need("espeakng_loader", "local-tts")
        from engine.tts.espeak import Espeak

        return Espeak()
    _need("piper", "local-tts")
    from engine.tts.piper import Piper
    from engine.weights import PIPER_JOE, locate

    packaged = locate(PIPER_JOE, settings.cache_path) / PIPER_JOE.files[0].name
    return Piper([packaged, *(Path(path).expanduser() for path in settings.tts.piper_voices)], settings.tts.threads)


def _need(module: str, extra: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise EngineSetupError(f"the Python package {module} is missing; install it: pip install 'stretto[{extra}]'")
