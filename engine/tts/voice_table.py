"""The shipped table of voices (`configs/voices.toml`): what feelings do, each voice's manner, and which voices the edge service has."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct

from engine.api import EngineSetupError, Voice
from engine.tts.style import EmotionChange, VoiceManner


class TableVoice(VoiceManner, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A voice's row: its manner, and for voices that no engine lists by itself its `languages`, its own language first."""

    languages: tuple[str, ...] = ()


class VoiceTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feelings by name, voices by id (`engine/name`)."""

    emotions: dict[str, EmotionChange] = {}
    voices: dict[str, TableVoice] = {}

    @property
    def manners(self) -> dict[str, TableVoice]:
        """What is particular to each voice."""
        return self.voices

    def listed(self, engine: str) -> tuple[Voice, ...]:
        """Voices of an engine that lists none by itself, in the table's order."""
        return tuple(
            Voice(id=voice_id, languages=row.languages, engine=engine)
            for voice_id, row in self.voices.items()
            if row.languages and voice_id.startswith(f"{engine}/")
        )


EMPTY = VoiceTable()


def load(path: Path) -> VoiceTable:
    """Raises `EngineSetupError` naming the file, the key and the fault."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), VoiceTable)
    except OSError as error:
        raise EngineSetupError(f"cannot read the voice table {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise EngineSetupError(f"the voice table {path} is wrong: {error}") from error
