"""Settings -> the voices, as one chain. Called by `engine/build.py` alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from engine.api import EngineSetupError, Synthesizer
from engine.settings import EngineSettings, SpeechServer
from engine.tts.chain import VoiceChain
from engine.tts.chain.breaker import BreakerSettings
from engine.tts.phrases import KeptPhrases
from engine.tts.voice_table import VoiceTable, load
from engine.weights import KOKORO, PIPER_JOE, Weights, locate

# Beside the package in a checkout, inside the gateway's in a wheel.
_SHIPPED = ("configs/voices.toml", "gateway/configs/voices.toml")

Need = Callable[[str, str], None]  # refuses a Python package that is missing, and names the extra that brings it


def needed_by_voices(settings: EngineSettings) -> tuple[Weights, ...]:
    """Packaged weights that the voices use."""
    weights = {"piper": PIPER_JOE, "kokoro": KOKORO}
    return tuple(weights[name] for name in settings.tts.engines if name in weights)


def build_voices(settings: EngineSettings, need: Need) -> tuple[Synthesizer, tuple[str, ...]]:
    """The voices that the settings ask for, and lines for the operator. Raises `EngineSetupError`."""
    tts = settings.tts
    table = load(_table_path(settings))
    makers: dict[str, Callable[[], list[Synthesizer]]] = {
        "edge": lambda: [_edge(settings, table, need)],
        "http": lambda: _servers(settings, table, need),
        "kokoro": lambda: [_kokoro(settings, need)],
        "piper": lambda: [_piper(settings, need)],
        "espeak": lambda: [_espeak(need)],
        "fake": lambda: [_fake(settings)],
    }
    engines = [engine for name in dict.fromkeys(tts.engines) for engine in makers[name]()]
    if not engines:
        raise EngineSetupError("tts.engines names no voice: expected at least one of edge, http, kokoro, piper, espeak")
    chain = VoiceChain(engines, table, BreakerSettings(rest_s=tts.rest_s, longest_rest_s=16 * tts.rest_s))
    voices = KeptPhrases(chain, settings.cache_path / "phrases", tts.phrases) if tts.phrases else chain
    return voices, _notes(settings, chain, [engine.name for engine in engines])


def _notes(settings: EngineSettings, chain: VoiceChain, names: list[str]) -> tuple[str, ...]:
    notes = [f"voices: {', '.join(names)}, default {chain.voices()[0].id}"]
    if "edge" in settings.tts.engines:
        notes.append("PRIVACY: replies are sent to Microsoft's speech service to be spoken (tts.engines has edge)")
    for name, server in settings.tts.servers.items() if "http" in settings.tts.engines else ():
        notes.append(f"PRIVACY: replies are sent to {name} at {server.url} to be spoken")
    if not any("zh" in voice.languages for voice in chain.voices()):
        notes.append("no Chinese voice here: Chinese replies are captioned, not spoken")
    return tuple(notes)


def _table_path(settings: EngineSettings) -> Path:
    if settings.tts.voice_table:
        return Path(settings.tts.voice_table).expanduser()
    root = Path(__file__).parents[1]
    return next((root / path for path in _SHIPPED if (root / path).is_file()), root / _SHIPPED[0])


def _edge(settings: EngineSettings, table: VoiceTable, need: Need) -> Synthesizer:
    for module in ("edge_tts", "miniaudio"):
        need(module, "edge")
    from engine.tts.edge import EdgeVoices

    listed = table.listed("edge")
    if not listed:
        raise EngineSetupError(f"tts.engines has edge and the voice table {_table_path(settings)} lists no edge voice")
    return EdgeVoices(settings.tts.edge, listed, table.manners)


def _servers(settings: EngineSettings, table: VoiceTable, need: Need) -> list[Synthesizer]:
    for module in ("httpx", "miniaudio"):
        need(module, "http")
    from engine.tts.openai import HttpVoices

    taken = {"edge", "http", "kokoro", "piper", "espeak", "fake"}
    for name, server in settings.tts.servers.items():
        if name in taken or "/" in name:
            raise EngineSetupError(f"tts.servers.{name}: expected a name without '/' that is none of {', '.join(sorted(taken))}")
        if not server.voices:
            raise EngineSetupError(f"tts.servers.{name}.voices is empty: name the server's voices")
        if not server.url.startswith(("http://", "https://")):
            raise EngineSetupError(f"tts.servers.{name}.url is {server.url!r}; expected an address as in http://127.0.0.1:8880/v1")
    if not settings.tts.servers:
        raise EngineSetupError("tts.engines has http and tts.servers is empty: give one as [tts.servers.NAME] with url and voices")
    return [
        HttpVoices(name, server, table.manners, table.emotions, api_key=_key(name, server)) for name, server in settings.tts.servers.items()
    ]


def _key(name: str, server: SpeechServer) -> str:
    if not server.key_variable:
        return ""
    key = os.environ.get(server.key_variable, "")
    if not key:
        raise EngineSetupError(
            f"tts.servers.{name}.key_variable names the environment variable {server.key_variable}, which is empty or not set"
        )
    return key


def _kokoro(settings: EngineSettings, need: Need) -> Synthesizer:
    for module in ("piper", "onnxruntime"):
        need(module, "local-hq")
    if any(name.startswith("z") for name in settings.tts.kokoro_voices):
        need("misaki", "local-zh")
    from engine.tts.kokoro import Kokoro

    return Kokoro(locate(KOKORO, settings.cache_path), settings.tts.kokoro_voices, settings.tts.threads)


def _piper(settings: EngineSettings, need: Need) -> Synthesizer:
    for module in ("piper", "onnxruntime"):
        need(module, "local-tts")
    from engine.tts.piper import Piper

    packaged = locate(PIPER_JOE, settings.cache_path) / PIPER_JOE.files[0].name
    return Piper([packaged, *(Path(path).expanduser() for path in settings.tts.piper_voices)], settings.tts.threads)


def _espeak(need: Need) -> Synthesizer:
    need("espeakng_loader", "local-tts")
    from engine.tts.espeak import Espeak

    return Espeak()


def _fake(settings: EngineSettings) -> Synthesizer:
    from engine.fake import ScriptedVoice

    return ScriptedVoice(first_chunk_ms=settings.fake.tts_first_chunk_ms, rtf=settings.fake.tts_rtf)
