"""Settings of what watches conversations, and of what products hook into them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class TracingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trace of every turn, sent by OTLP."""

    endpoint: str = ""
    share: Annotated[float, Meta(ge=0, le=1)] = 1.0
    service: str = "stretto"


class CaptureSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations kept in files, words and all."""

    folder: str = ""
    all: bool = False
    on_request: bool = False
    audio: bool = False
    file_bytes: Annotated[int, Meta(ge=4096)] = 8 * 1024 * 1024
    folder_bytes: Annotated[int, Meta(ge=4096)] = 512 * 1024 * 1024
    keep_h: Annotated[float, Meta(gt=0)] = 168.0


class UsageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the record of each turn's use goes."""

    file: str = ""
    url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    key_variable: str = ""


class ModerationSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who judges words before they are heard."""

    url: Annotated[str, Meta(pattern="^(https?://.+)?$")] = ""
    key_variable: str = ""
    judges: tuple[Literal["input", "segment"], ...] = ("input", "segment")
    deadline_ms: Annotated[int, Meta(ge=10, le=5000)] = 300
    on_failure: Literal["allow", "refuse"] = "refuse"
    phrase: str = ""


class LabelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How generated speech says that it is generated. `notice`: a sentence for each language."""

    notice: dict[str, str] = {}
    marker: bool = False

    def notice_in(self, language: str) -> str:
        """The notice for a session of this language; the first one where there is none for it, "" where there are none."""
        wanted = language.partition("-")[0].lower()
        return next(
            (text for tag, text in self.notice.items() if tag.partition("-")[0].lower() == wanted), next(iter(self.notice.values()), "")
        )
