"""The words of the edge voice service: two text messages out; text and binary messages back. Pure.

The package `edge-tts` supplies what the service is particular about (token, headers, SSML); its `Communicate` is not used, because
it opens a connection for each text, its receive timeout has no effect on a WebSocket, a connection lost in the middle of the
audio ends its stream like a complete one, and it keeps the clock's skew in a global (all seen in 7.3.1).
Source: edge-tts 7.3.1, `communicate.py`.
"""

from __future__ import annotations

from typing import Any
from xml.sax.saxutils import escape, unescape

import msgspec
from edge_tts.communicate import connect_id, date_to_string, mkssml, remove_incompatible_characters, ssml_headers_plus_data
from edge_tts.data_classes import TTSConfig
from msgspec import Struct

from engine.api import EngineError
from engine.tts.edge.prosody import EdgeProsody

AUDIO_FORMAT = "audio-24khz-48kbitrate-mono-mp3"  # the only one that edge-tts asks for
SAMPLE_RATE_HZ = 24_000
TICKS_PER_MS = 10_000
MAX_TEXT_BYTES = 4096  # of escaped text in one request; the service cuts longer ones off


class EdgeProtocolError(EngineError):
    """The service answered something that is not its protocol."""

    kind = "protocol"


class Audio(Struct, frozen=True):
    """MP3 bytes."""

    data: bytes


class Word(Struct, frozen=True):
    """A word of the text and when it sounds, in milliseconds from the start of the audio."""

    text: str
    start_ms: int
    end_ms: int


class Words(Struct, frozen=True):
    """Words whose audio is on its way or here."""

    words: tuple[Word, ...]


class TurnEnd(Struct, frozen=True):
    """The text is spoken."""


class Nothing(Struct, frozen=True):
    """A message without news for us."""


Message = Audio | Words | TurnEnd | Nothing


def config_message() -> str:
    """Asks for MP3 and for word timings; the first message of a connection."""
    return (
        f"X-Timestamp:{date_to_string()}\r\n"
        "Content-Type:application/json; charset=utf-8\r\n"
        "Path:speech.config\r\n\r\n"
        '{"context":{"synthesis":{"audio":{"metadataoptions":{'
        '"sentenceBoundaryEnabled":"false","wordBoundaryEnabled":"true"},'
        f'"outputFormat":"{AUDIO_FORMAT}"'
        "}}}}\r\n"
    )


def ssml_message(text: str, voice: str, prosody: EdgeProsody) -> str:
    """The request to speak `text`. Markup in it is text: it is escaped, control characters become spaces.

    Raises `ValueError` when the escaped text is longer than the service reads.
    """
    escaped = escape(remove_incompatible_characters(text.encode("utf-8", "replace").decode("utf-8")))
    n_bytes = len(escaped.encode("utf-8"))
    if n_bytes > MAX_TEXT_BYTES:
        raise ValueError(f"expected at most {MAX_TEXT_BYTES} bytes of text, got {n_bytes}")
    config = TTSConfig(voice, prosody.rate, prosody.volume, prosody.pitch, "WordBoundary")
    return ssml_headers_plus_data(connect_id(), date_to_string(), mkssml(config, escaped))


def read_text(message: str) -> Message:
    """What a text message says. Raises `EdgeProtocolError`."""
    head, separator, body = message.partition("\r\n\r\n")
    path = _headers(head.encode("utf-8", "replace")).get(b"Path") if separator else None
    match path:
        case b"audio.metadata":
            return Words(tuple(_words(body)))
        case b"turn.end":
            return TurnEnd()
        case b"response" | b"turn.start":
            return Nothing()
        case _:
            raise EdgeProtocolError(f"expected a text message with a known Path, got {path!r} in {len(message)} characters")


def read_binary(message: bytes) -> Message:
    """What a binary message says: two bytes of header length, headers, MP3. Raises `EdgeProtocolError`."""
    if len(message) < 2:
        raise EdgeProtocolError(f"expected a binary message of 2 bytes or more, got {len(message)}")
    length = int.from_bytes(message[:2], "big")
    if length + 2 > len(message):
        raise EdgeProtocolError(f"expected {length} bytes of headers, got {len(message) - 2}")
    headers, data = _headers(message[2 : 2 + length]), message[2 + length :]
    path, content = headers.get(b"Path"), headers.get(b"Content-Type")
    if path != b"audio":
        raise EdgeProtocolError(f"expected a binary message with Path audio, got {path!r}")
    if content is None and not data:
        return Nothing()  # closes the audio; turn.end follows
    if content != b"audio/mpeg":
        raise EdgeProtocolError(f"expected Content-Type audio/mpeg, got {content!r}")
    return Audio(data)


def _headers(head: bytes) -> dict[bytes, bytes]:
    """Lines without a colon are no headers; the package fails on them with a bare ValueError."""
    pairs = (line.partition(b":") for line in head.split(b"\r\n"))
    return {key: value.strip() for key, colon, value in pairs if colon}


def _words(body: str) -> list[Word]:
    try:
        entries: list[dict[str, Any]] = msgspec.json.decode(body)["Metadata"]  # Any: foreign JSON, read entry by entry below
        return [_word(entry["Data"]) for entry in entries if entry["Type"] == "WordBoundary"]
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise EdgeProtocolError(f"expected word boundaries as JSON, got {len(body)} characters of something else") from error


def _word(data: dict[str, Any]) -> Word:
    start, length = int(data["Offset"]), int(data["Duration"])
    return Word(unescape(str(data["text"]["Text"])), start // TICKS_PER_MS, (start + length) // TICKS_PER_MS)
