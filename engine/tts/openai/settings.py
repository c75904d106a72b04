"""What an operator may set about one server with `/v1/audio/speech`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Seconds = Annotated[float, Meta(gt=0, le=120)]
AudioFormat = Literal["pcm", "wav", "mp3", "opus"]


class HttpVoice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A voice: the server's own `name` for it, and what it speaks, its own language first."""

    name: str
    languages: tuple[str, ...] = ("en",)


class HttpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server. `base_url` ends before `/audio/speech`, usually in `/v1`.

    `first_audio_s` runs from the request to the first sound, `next_s` between two pieces. `pcm_rate_hz`: of headerless PCM (OpenAI's
    is 24,000). `instructions`: the model reads feelings in words. `style_field`: the request field that takes the voice's own style
    name. `extra`: further fields of the request, as the server wants them.
    """

    base_url: str
    voices: tuple[HttpVoice, ...]
    model: str = ""
    api_key: str = ""
    format: AudioFormat = "pcm"
    pcm_rate_hz: Annotated[int, Meta(ge=8_000, le=96_000)] = 24_000
    instructions: bool = False
    style_field: str = ""
    extra: dict[str, Any] = {}  # Any: the server's own fields, passed on
    connect_s: Seconds = 2.0
    first_audio_s: Seconds = 5.0
    next_s: Seconds = 3.0
    streams: Annotated[int, Meta(ge=1, le=256)] = 8
    waiting: Annotated[int, Meta(ge=0, le=256)] = 16
