"""Piper voices: natural speech on one CPU core, from any Piper voice file (`NAME.onnx` with `NAME.onnx.json` beside it)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.api import EngineSetupError, Voice
from engine.tts.local import LocalVoices
from engine.tts.script import primary
from engine.worker import WorkerSpec

NAME = "piper"
_CAPACITY = 256  # segments: two for each of 64 conversations, twice over
_STALL_S = 20.0  # one clause takes 0.4 s on a quiet core


class _Espeak(msgspec.Struct):
    voice: str = "en-us"


class _VoiceConfig(msgspec.Struct):
    """The part of a voice's .onnx.json that is needed before it is loaded."""

    espeak: _Espeak = msgspec.field(default_factory=_Espeak)


class Piper(LocalVoices):
    """Speaks with the voices in `paths`; ids are `piper/` and the file's name. `threads` per inference.

    Raises `EngineSetupError` where a voice's files cannot be read or two have one name.
    """

    def __init__(self, paths: Sequence[Path], threads: int = 1) -> None:
        files = {f"{NAME}/{path.stem}": path for path in paths}
        if len(files) < len(paths) or not paths:
            raise EngineSetupError(f"got {len(paths)} Piper voices with {len(files)} names, expected one or more, each with its own name")
        voices = [Voice(id=voice_id, languages=(_language(path),), engine=NAME) for voice_id, path in files.items()]
        setup = {"voices": [{"id": voice_id, "path": str(path)} for voice_id, path in files.items()], "threads": threads}
        spec = WorkerSpec(name=NAME, factory="engine.tts.piper.stage:PiperStage", setup=setup, capacity=_CAPACITY, stall_s=_STALL_S)
        super().__init__(NAME, voices, spec)


def _language(path: Path) -> str:
    """The language of a voice file. Raises `EngineSetupError`."""
    config = path.with_name(f"{path.name}.json")
    for file in (path, config):
        if not file.is_file():
            expected = "the path of a voice's .onnx with its .onnx.json beside it"
            raise EngineSetupError(f"tts.piper_voices names {path}, and {file} is missing: expected {expected}")
    try:
        return primary(msgspec.json.decode(config.read_bytes(), type=_VoiceConfig).espeak.voice)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineSetupError(f"{config} is not a Piper voice's description: {error}") from error
