"""Kokoro: the best local voices, English and Chinese, at about the price of one CPU core for each voice that speaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.api import EngineSetupError, Voice
from engine.tts.local import LocalVoices
from engine.worker import WorkerSpec

NAME = "kokoro"
MODEL_FILE = "kokoro-v1.0.int8.onnx"
ENGLISH = ("af_heart", "af_bella", "af_nicole", "am_michael", "am_fenrir", "bf_emma", "bm_george")
CHINESE = ("zf_xiaobei", "zf_xiaoni", "zf_xiaoxiao", "zf_xiaoyi", "zm_yunjian", "zm_yunxi", "zm_yunxia", "zm_yunyang")
_LANGUAGES = {"a": "en", "b": "en", "e": "es", "f": "fr", "h": "hi", "i": "it", "p": "pt", "z": "zh"}
_CAPACITY = 32  # segments: at a core a voice more than a few would wait too long anyway
_STALL_S = 30.0  # a long clause takes 6 s on a busy core


class Kokoro(LocalVoices):
    """Speaks with `names` out of `folder` (model and `NAME.bin` voices); ids are `kokoro/` and the name. `threads` per inference.

    Raises `EngineSetupError` for a voice whose language nobody here can turn into phonemes.
    """

    def __init__(self, folder: Path, names: Sequence[str] = ENGLISH, threads: int = 1) -> None:
        foreign = [name for name in names if name[:1] not in _LANGUAGES]
        if foreign or not names:
            raise EngineSetupError(f"got the Kokoro voices {foreign or 'none'}, expected names beginning with one of {''.join(_LANGUAGES)}")
        voices = [Voice(id=f"{NAME}/{name}", languages=(_LANGUAGES[name[0]],), engine=NAME) for name in names]
        setup = {"model": str(folder / MODEL_FILE), "folder": str(folder), "voices": [voice.id for voice in voices], "threads": threads}
        spec = WorkerSpec(name=NAME, factory="engine.tts.kokoro.stage:KokoroStage", setup=setup, capacity=_CAPACITY, stall_s=_STALL_S)
        super().__init__(NAME, voices, spec)
