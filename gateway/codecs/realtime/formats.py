"""Audio formats by the names that clients use, the beta's flat ones among them: what they are here, and how they are shown."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway.codecs.realtime.faults import Fault, Json
from gateway.codecs.realtime.fields import Fields, wrong_type
from gateway.events import AudioOut

RATE_HZ = 24_000  # of audio/pcm; clients' types know no other


class Format(Struct, frozen=True):
    """One that is taken in both directions."""

    codec: Literal["pcm16", "g711u", "g711a"]
    rate_hz: int
    shown: Json


PCM = Format("pcm16", RATE_HZ, {"type": "audio/pcm", "rate": RATE_HZ})
PCMU = Format("g711u", 8000, {"type": "audio/pcmu"})
PCMA = Format("g711a", 8000, {"type": "audio/pcma"})
_BY_NAME = {"audio/pcm": PCM, "pcm16": PCM, "audio/pcmu": PCMU, "g711_ulaw": PCMU, "audio/pcma": PCMA, "g711_alaw": PCMA}
_BY_CODEC: dict[str, Format] = {known.codec: known for known in (PCM, PCMU, PCMA)}


def read_format(fields: Fields, name: str) -> Format | None:
    """None where it is absent. Raises `Fault`: asking for something else must not pass in silence."""
    if not fields.has(name):
        return None
    path, value = fields.at(name), fields.body[name]
    rate: float | None = None
    if isinstance(value, dict):
        given = fields.needed_object(name)
        value, rate = given.text("type") or "audio/pcm", given.number("rate")
    elif not isinstance(value, str):
        raise wrong_type(path, value, "an object")
    found = _BY_NAME.get(value)
    if found is None:
        raise Fault(f"{path} is {value[:40]!r}; expected audio/pcm, audio/pcmu or audio/pcma.", "invalid_value", path)
    if rate is not None and rate != found.rate_hz:
        raise Fault(f"{path}.rate is {rate:.0f}; expected {found.rate_hz}.", "invalid_value", f"{path}.rate")
    return found


def show_format(audio_out: AudioOut) -> Json:
    """As the session and the response objects carry it."""
    return _BY_CODEC[audio_out.codec].shown


def bytes_per_s(audio_out: AudioOut) -> int:
    """Bytes of a second of sound."""
    return audio_out.rate_hz * (2 if audio_out.codec == "pcm16" else 1)
