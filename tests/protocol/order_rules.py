"""The order of a Realtime conversation as a checker: give it every event we send, in order, and it says what is wrong.

Brackets open once and close once, nothing of a response follows its end, deltas joined are what `.done` says, ids are unique, and
one response of the conversation is open at a time.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections import defaultdict
from typing import Any

Json = dict[str, Any]  # Any: a JSON object of the protocol
LARGEST_FRAME = 65_536  # some clients have a fixed buffer of this size


class OrderBroken(AssertionError):
    """An event that may not come now."""


class Response:
    """What is open in one response."""

    def __init__(self, event: Json) -> None:
        self.in_conversation = event["response"]["conversation_id"] is not None
        self.sample_bytes = 2 if event["response"]["audio"]["output"]["format"]["type"] == "audio/pcm" else 1
        self.items: dict[str, str] = {}  # id -> open | done
        self.parts: dict[str, str] = {}
        self.deltas: dict[tuple[str, str], str] = defaultdict(str)
        self.done: dict[tuple[str, str], str] = {}
        self.n_audio = 0
        self.is_audio_done = False


class OrderRules:
    """`events` are those that were right; `check` raises `OrderBroken`."""

    def __init__(self) -> None:
        self.events: list[Json] = []
        self.open: dict[str, Response] = {}
        self._ids: set[str] = set()
        self._ended: set[str] = set()
        self._items: set[str] = set()
        self._deleted: set[str] = set()
        self._is_first = True

    def frame(self, frame: str | bytes) -> Json:
        """Check one frame of the socket."""
        self._hold(isinstance(frame, str), "a binary frame")
        self._hold(len(frame) < LARGEST_FRAME, f"a frame of {len(frame)} characters")
        event = json.loads(frame)
        self.check(event)
        return dict(event)

    def check(self, event: Json) -> None:
        """Raises `OrderBroken`."""
        kind = event["type"]
        self._hold(event["event_id"] not in self._ids, f"{kind}: its event_id was used before")
        self._ids.add(event["event_id"])
        self._hold((kind == "session.created") is self._is_first, f"{kind}: session.created is the first event, once")
        self._is_first = False
        if kind == "response.created":
            self._created(event["response"])
        elif kind == "response.done":
            self._response_done(event["response"])
        elif kind.startswith("response."):
            response_id = event["response_id"]
            self._hold(response_id not in self._ended, f"{kind} after its response.done")
            self._hold(response_id in self.open, f"{kind} without response.created")
            self._inside(kind, event, self.open[response_id])
        elif kind.startswith("conversation.item."):
            self._item(kind, event)
        self.events.append(event)

    def finish(self) -> None:
        """Everything that was opened is closed."""
        self._hold(not self.open, f"responses were left open: {list(self.open)}")

    def _created(self, response: Json) -> None:
        self._hold(response["id"] not in self.open and response["id"] not in self._ended, "a response was created twice")
        self._hold(response["status"] == "in_progress" and response["output"] == [], "a new response is not empty and in progress")
        made = Response({"response": response})
        others = [one for one in self.open.values() if one.in_conversation]
        self._hold(not (made.in_conversation and others), "two responses of the conversation are open")
        self.open[response["id"]] = made

    def _response_done(self, response: Json) -> None:
        self._hold(response["id"] in self.open, "response.done without response.created, or twice")
        made = self.open.pop(response["id"])
        self._ended.add(response["id"])
        self._hold(all(state == "done" for state in (*made.items.values(), *made.parts.values())), "response.done left a bracket open")
        self._hold([item["id"] for item in response["output"]] == list(made.items), "output is not what was sent")
        self._hold(response["status"] in ("completed", "cancelled", "failed", "incomplete"), f"status {response['status']}")
        self._hold((response["status_details"] is None) is (response["status"] == "completed"), "status_details do not fit the status")

    def _inside(self, kind: str, event: Json, made: Response) -> None:
        name = kind.removeprefix("response.")
        if name == "output_item.added":
            self._hold(event["output_index"] == len(made.items), "output_index is not the next one")
            made.items[event["item"]["id"]] = "open"
            return
        item_id = event["item"]["id"] if name == "output_item.done" else event["item_id"]
        self._hold(made.items.get(item_id) == "open", f"{kind} outside its item")
        if name == "output_item.done":
            self._hold(made.parts.get(item_id, "done") == "done", "output_item.done left its part open")
            made.items[item_id] = "done"
        elif name == "content_part.added":
            made.parts[item_id] = "open"
        elif name == "content_part.done":
            said = event["part"].get("transcript", event["part"].get("text"))
            self._hold(made.done == {(item_id, _KIND[event["part"]["type"]]): said}, "the part is not what was said")
            self._hold(event["part"]["type"] == "text" or made.is_audio_done, "the part ends before its audio")
            made.parts[item_id] = "done"
        elif name.startswith("function_call_arguments"):
            self._stream(event, made, item_id, "arguments")
        else:
            self._hold(made.parts.get(item_id) == "open", f"{kind} outside its part")
            self._part(name, event, made, item_id)

    def _part(self, name: str, event: Json, made: Response, item_id: str) -> None:
        if name == "output_audio.delta":
            self._hold(not made.is_audio_done, "audio after its end")
            self._hold(bool(made.deltas), "sound before its transcript")
            self._audio(event["delta"], made.sample_bytes)
            made.n_audio += 1
        elif name == "output_audio.done":
            made.is_audio_done = True
        elif name.startswith("output_audio_transcript"):
            self._stream(event, made, item_id, "transcript")
        elif name.startswith("output_text"):
            self._stream(event, made, item_id, "text")
        else:
            raise OrderBroken(f"an event this checker does not know: {name}")

    def _stream(self, event: Json, made: Response, item_id: str, field: str) -> None:
        key = (item_id, field)
        if event["type"].endswith(".delta"):
            self._hold(key not in made.done, f"{event['type']} after its end")
            self._hold(event["delta"] != "" or field == "arguments", "an empty delta")
            made.deltas[key] += event["delta"]
        else:
            self._hold(made.deltas[key] == event[field], f"{event['type']} is not its deltas joined")
            if field != "arguments":
                made.done[key] = event[field]

    def _audio(self, delta: str, sample_bytes: int) -> None:
        try:
            data = base64.b64decode(delta, validate=True)
        except binascii.Error as error:
            raise OrderBroken("a delta is not base64") from error
        self._hold(len(data) > 0 and len(data) % sample_bytes == 0, f"a delta of {len(data)} bytes")

    def _item(self, kind: str, event: Json) -> None:
        """An item is added once and done once, behind one that was shown; a deleted one may be named and its id used again."""
        if kind == "conversation.item.deleted":
            self._items.discard(event["item_id"])
            self._deleted.add(event["item_id"])
        elif kind in ("conversation.item.added", "conversation.item.done"):
            previous, item_id = event["previous_item_id"], event["item"]["id"]
            self._hold(previous is None or previous in self._items | self._deleted, f"previous_item_id {previous!r} was never shown")
            is_known = item_id in self._items or (kind == "conversation.item.done" and item_id in self._deleted)
            self._hold(is_known is (kind == "conversation.item.done"), f"{kind}: {item_id} is {'known' if is_known else 'unknown'}")
            if kind == "conversation.item.added":
                self._items.add(item_id)

    @staticmethod
    def _hold(is_right: bool, fault: str) -> None:
        if not is_right:
            raise OrderBroken(fault)


_KIND = {"audio": "transcript", "text": "text"}
