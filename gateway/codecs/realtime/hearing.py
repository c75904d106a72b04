"""The microphone's side of the protocol: audio in, who ends an utterance, and what is told of it.

A `turn_detection` that is null means: the client's commits become items, and `response.create` asks for replies. A `server_vad` without a
`silence_duration_ms`, and every `semantic_vad`, means the gateway's own judgement; `session.updated` shows the numbers in force.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from gateway.codecs.realtime.faults import Fault, Json
from gateway.codecs.realtime.fields import Fields
from gateway.codecs.realtime.formats import PCM, read_format
from gateway.codecs.realtime.overrides import Wishes
from gateway.events import (
    AppendAudio,
    AudioIn,
    Eagerness,
    Endpointing,
    ErrorRaised,
    ServerEvent,
    SilenceTimedOut,
    SpeechEnded,
    SpeechStarted,
    Transcribed,
)

IDLE_MS = (1000, 600_000)
LONGEST_MS = 60_000  # what is longer is no silence within a conversation, and a mistake; the gateway's own bound is lower
_EAGERNESS: dict[str, Eagerness] = {"low": "low", "medium": "medium", "high": "high", "auto": "auto"}
SERVER_VAD: Json = {"type": "server_vad", "create_response": True, "interrupt_response": True}


class Hearing:
    """Of one connection. `shown` is the session object's `audio.input`, but for the numbers of its turn detection."""

    def __init__(self, *, is_available: bool) -> None:
        self.is_available = is_available
        self.shown: Json = {
            "format": PCM.shown,
            "transcription": None,
            "noise_reduction": None,
            "turn_detection": SERVER_VAD if is_available else None,
        }
        self._started_ms = 0
        self._ended_ms = 0

    def append(self, fields: Fields) -> AppendAudio:
        """Audio of a message. Raises `Fault`."""
        try:
            data = base64.b64decode(fields.needed_text("audio"), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Fault("audio is not base64; expected padded base64 of whole samples.", "invalid_value", "audio") from error
        return AppendAudio(data=data)  # without a time: it follows the last one

    def describe(self, numbers: Endpointing) -> Json:
        """The session object's `audio.input`."""
        detection = self.shown["turn_detection"]
        return self.shown | {"turn_detection": None if detection is None else _numbers(detection, numbers)}

    def read(self, session: Fields) -> tuple[Wishes, Json]:
        """What a `session.update` asks of the microphone, as fields of UpdateSession, and what of `shown` it changes. Raises `Fault`."""
        audio = session.object("audio")
        given = Fields({}, "session.audio.input") if audio is None else audio.object("input") or Fields({}, "session.audio.input")
        wishes: Wishes = {}
        shown: Json = {}
        if not self.is_available:
            return wishes, shown
        for place, prefix in ((session, "input_audio_"), (given, "")):
            if (format_ := read_format(place, f"{prefix}format")) is not None:
                wishes["audio_in"], shown["format"] = AudioIn(codec=format_.codec, rate_hz=format_.rate_hz), format_.shown
            if f"{prefix}transcription" in place.body:
                transcription = place.object(f"{prefix}transcription")
                shown["transcription"] = None if transcription is None else transcription.body
                if transcription is not None and (language := transcription.text("language")):
                    wishes["language"] = language
            if "turn_detection" in place.body:
                shown["turn_detection"] = _detection(place.object("turn_detection"), wishes)
        return wishes, shown

    def tell(self, event: ServerEvent, previous: str | None) -> Iterator[Json]:
        """What the client is told of speech; `previous`: the newest item it knows."""
        has_vad = self.shown["turn_detection"] is not None
        match event:
            case SpeechStarted():
                self._started_ms = event.at_ms
                if has_vad:
                    yield {"type": "input_audio_buffer.speech_started", "audio_start_ms": event.at_ms, "item_id": event.item_id}
            case SilenceTimedOut():
                self._started_ms, self._ended_ms = event.from_ms, event.to_ms
                times = {"audio_start_ms": event.from_ms, "audio_end_ms": event.to_ms}
                yield {"type": "input_audio_buffer.timeout_triggered", **times, "item_id": event.item_id}
                yield from self._committed(event.item_id, previous)
                yield from self._transcript(event.item_id, "")
            case SpeechEnded():
                self._ended_ms = event.at_ms
                if has_vad:
                    yield {"type": "input_audio_buffer.speech_stopped", "audio_end_ms": event.at_ms, "item_id": event.item_id}
            case Transcribed() if event.final and (event.text or not has_vad):
                yield from self._committed(event.item_id, previous)
                yield from self._transcript(event.item_id, event.text)
            case ErrorRaised() if event.item_id is not None:  # no `error`, which ends some clients: only this item is lost
                yield from self._committed(event.item_id, previous)
                failure = {"type": "server_error", "code": event.code, "message": event.message}
                part = {"item_id": event.item_id, "content_index": 0}
                yield {"type": "conversation.item.input_audio_transcription.failed", **part, "error": failure}

    def _committed(self, item_id: str | None, previous: str | None) -> Iterator[Json]:
        yield {"type": "input_audio_buffer.committed", "previous_item_id": previous, "item_id": item_id}
        for kind in ("conversation.item.added", "conversation.item.done"):
            yield {"type": kind, "previous_item_id": previous, "item": _spoken(item_id)}

    def _transcript(self, item_id: str | None, text: str) -> Iterator[Json]:
        """Where it is wanted. Partial texts change as more is heard, and this protocol's only grow: so it is told once, whole."""
        if self.shown["transcription"] is None:
            return
        part = {"item_id": item_id, "content_index": 0}
        seconds = max(0, self._ended_ms - self._started_ms) / 1000
        if text:
            yield {"type": "conversation.item.input_audio_transcription.delta", **part, "delta": text}
        usage = {"type": "duration", "seconds": seconds}
        yield {"type": "conversation.item.input_audio_transcription.completed", **part, "transcript": text, "usage": usage}


def _spoken(item_id: str | None) -> Json:
    content = [{"type": "input_audio", "transcript": None}]
    return {"id": item_id, "object": "realtime.item", "type": "message", "status": "completed", "role": "user", "content": content}


def _detection(given: Fields | None, wishes: Wishes) -> Json | None:
    """The turn detection without its numbers, and what it means for the session. Raises `Fault`."""
    if given is None:
        wishes.update(turn_detection="push_to_talk", auto_reply=False, allow_barge_in=True, endpointing=Endpointing())
        return None
    shown: Json = {"type": given.choice("type", ("server_vad", "semantic_vad")) or "server_vad"}
    for name in ("create_response", "interrupt_response"):
        shown[name] = given.flag(name) is not False
    wishes.update(turn_detection="auto", auto_reply=shown["create_response"], allow_barge_in=shown["interrupt_response"])
    if shown["type"] == "semantic_vad":
        wishes["endpointing"] = Endpointing(eagerness=_EAGERNESS[given.choice("eagerness", tuple(_EAGERNESS)) or "auto"])
    else:
        wishes["endpointing"] = Endpointing(
            speech_probability=given.number_within("threshold", 0, 1),
            preroll_ms=_whole(given.number_within("prefix_padding_ms", 0, LONGEST_MS)),
            silence_ms=_whole(given.number_within("silence_duration_ms", 0, LONGEST_MS)),
            idle_timeout_ms=_whole(given.number_within("idle_timeout_ms", *IDLE_MS)),
        )
    return shown


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)


def _numbers(detection: Json, numbers: Endpointing) -> Json:
    """The turn detection as it is in force."""
    if detection["type"] == "semantic_vad":
        return detection | {"eagerness": numbers.eagerness}
    return detection | {
        "threshold": numbers.speech_probability,
        "prefix_padding_ms": numbers.preroll_ms,
        "silence_duration_ms": numbers.silence_ms,
        "idle_timeout_ms": numbers.idle_timeout_ms,
    }
