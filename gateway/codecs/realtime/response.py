"""One response: a turn told as brackets around brackets, each opened once and closed once, whatever ends it.

At most one message item with one part, however many sentences; then the function calls. In audio the transcript of a sentence goes out
right before its first sound, so that what a client holds when it stops is about what was heard.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Literal

from gateway.codecs.realtime.faults import Json
from gateway.codecs.realtime.formats import bytes_per_s, show_format
from gateway.codecs.realtime.items import function_call, message
from gateway.events import AudioOut, ToolCalled, TurnStarted, UsageInfo

Status = Literal["completed", "cancelled", "failed", "incomplete"]


class Response:
    """Yields events without `event_id`. `previous_item_id`: the item its first one follows; `conversation_id` None: out of band."""

    def __init__(
        self,
        response_id: str,
        started: TurnStarted,
        conversation_id: str | None,
        previous_item_id: str | None,
        *,
        voice: str,
        max_tokens: int | Literal["inf"],
    ) -> None:
        self.id = response_id
        self.turn = started.turn
        self.item_id = started.reply_id or f"item_{response_id}"
        self.modality: Literal["audio", "text"] = started.output or "audio"
        self.in_conversation = conversation_id is not None
        self.n_sounding = 0
        self._audio_out = started.audio_out or AudioOut()
        self._conversation_id = conversation_id
        self._metadata = started.metadata
        self._voice = voice
        self._max_tokens = max_tokens
        self._previous_item_id = previous_item_id
        self._output: list[Json] = []
        self._n_items = 0
        self._is_open = False
        self._said: list[str] = []
        self._texts: dict[int, str] = {}
        self._n_audio_bytes = 0
        self._calls: list[ToolCalled] = []

    def begin(self) -> Iterator[Json]:
        """Its first event."""
        yield {"type": "response.created", "response": self._object("in_progress", None, None)}

    def decide(self, index: int, text: str) -> None:
        """A sentence is decided; in audio it waits for its sound."""
        if self.modality == "audio":
            self._texts[index] = text

    def write(self, text: str) -> Iterator[Json]:
        """Text as it is written; in audio the sentences say it."""
        if self.modality == "text" and text:
            yield from self._open()
            self._said.append(text)
            yield self._part_event("response.output_text.delta") | {"delta": text}

    def speak(self, index: int) -> Iterator[Json]:
        """A sentence is about to sound, or has passed without a sound."""
        text = self._texts.pop(index, "")
        if text:
            yield from self._open()
            self._said.append(text)
            start_time = round(self._n_audio_bytes / bytes_per_s(self._audio_out), 3)  # seconds; an extra that LiveKit's clients read
            yield self._part_event("response.output_audio_transcript.delta") | {"delta": text, "start_time": start_time}

    def sound(self, data: bytes) -> Iterator[Json]:
        """Audio of the sentence that was spoken last."""
        yield from self._open()
        self._n_audio_bytes += len(data)
        self.n_sounding += 1
        yield self._part_event("response.output_audio.delta") | {"delta": base64.b64encode(data).decode("ascii")}

    def call(self, call: ToolCalled) -> None:
        """The model wants a function called; told behind the message, in which sound may still be on its way."""
        self._calls.append(call)

    def end(self, status: Status, details: Json | None, usage: UsageInfo | None) -> Iterator[Json]:
        """Close every bracket. `details`: status_details; of a response that was stopped the calls not told yet are dropped."""
        yield from self._close("completed" if status == "completed" else "incomplete")
        if status in ("completed", "incomplete"):
            for call in self._calls:
                yield from self._function_call(call)
        yield {"type": "response.done", "response": self._object(status, details, usage)}

    def _open(self) -> Iterator[Json]:
        """The message item and its one part."""
        if self._is_open:
            return
        self._is_open = True
        yield from self._item_added(message(self.item_id, "in_progress", None, self.modality))
        yield self._part_event("response.content_part.added") | {"part": self._part("")}

    def _close(self, status: str) -> Iterator[Json]:
        if not self._is_open:
            return
        text = "".join(self._said)
        if self.modality == "audio":
            yield self._part_event("response.output_audio.done")
            yield self._part_event("response.output_audio_transcript.done") | {"transcript": text}
        else:
            yield self._part_event("response.output_text.done") | {"text": text}
        yield self._part_event("response.content_part.done") | {"part": self._part(text)}
        yield from self._item_done(message(self.item_id, status, text, self.modality))

    def _function_call(self, call: ToolCalled) -> Iterator[Json]:
        item_id = call.item_id or f"item_{call.call_id}"
        yield from self._item_added(function_call(item_id, call.call_id, call.name, "", "in_progress"))
        place = {"response_id": self.id, "item_id": item_id, "output_index": self._n_items - 1, "call_id": call.call_id}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": call.arguments}
        yield {"type": "response.function_call_arguments.done", **place, "name": call.name, "arguments": call.arguments}
        yield from self._item_done(function_call(item_id, call.call_id, call.name, call.arguments, "completed"))

    def _item_added(self, item: Json) -> Iterator[Json]:
        self._n_items += 1
        yield {"type": "response.output_item.added", "response_id": self.id, "output_index": self._n_items - 1, "item": item}
        if self.in_conversation:
            yield {"type": "conversation.item.added", "previous_item_id": self._previous_item_id, "item": item}

    def _item_done(self, item: Json) -> Iterator[Json]:
        self._output.append(item)
        yield {"type": "response.output_item.done", "response_id": self.id, "output_index": self._n_items - 1, "item": item}
        if self.in_conversation:
            yield {"type": "conversation.item.done", "previous_item_id": self._previous_item_id, "item": item}
        self._previous_item_id = item["id"]

    def _part_event(self, kind: str) -> Json:
        return {"type": kind, "response_id": self.id, "item_id": self.item_id, "output_index": 0, "content_index": 0}

    def _part(self, text: str) -> Json:
        return {"type": "audio", "transcript": text} if self.modality == "audio" else {"type": "text", "text": text}

    def _object(self, status: str, details: Json | None, usage: UsageInfo | None) -> Json:
        return {
            "object": "realtime.response",
            "id": self.id,
            "status": status,
            "status_details": details,
            "output": list(self._output),
            "conversation_id": self._conversation_id,
            "output_modalities": [self.modality],
            "max_output_tokens": self._max_tokens,
            "audio": {"output": {"format": show_format(self._audio_out), "voice": self._voice}},
            "usage": None if usage is None else _usage(usage),
            "metadata": self._metadata,
        }


def _usage(usage: UsageInfo) -> Json:
    """The model's real counts; sound is made by a voice, not by tokens."""
    cached = usage.cached_tokens
    return {
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.prompt_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": cached,
            "cached_tokens_details": {"text_tokens": cached, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }
