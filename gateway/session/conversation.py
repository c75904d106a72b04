"""What was said, called and heard: the history, and the ties between its items and the turns that made them.

Changed by the session alone, without waiting. Out-of-band turns (`plan.has_floor` False) leave no trace here but their open calls.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterable, Iterator

from msgspec import structs

from engine.api import Message, ToolCall
from gateway.errors import NotAudio, UnknownCall
from gateway.events import (
    AddItem,
    DeleteItem,
    HistoryItem,
    ItemAdded,
    ItemDeleted,
    ItemInfo,
    ItemRetrieved,
    ItemTruncated,
    RetrieveItem,
    ToolResult,
    TruncateItem,
)
from gateway.history import Budget, History, Item, estimated_tokens, prompt_messages, without_reasoning
from gateway.profile import Profile
from gateway.session.calls import Calls
from gateway.session.items import Bounds, checked_text, context_from, item_from, new_item_id, shown
from gateway.speech.markup import MarkupRules
from gateway.turn import SentCall, Turn

SPARE_IDS = 4  # random ids of 64 bits; the second is never needed
CUTTABLE = 8  # newest replies that `item.truncate` still finds: clients cut the one they have just stopped


class Conversation:
    """`keeps_silent`: a reply of which nothing was heard stays as an (empty) item, because its client refers to it."""

    def __init__(self, rules: MarkupRules, bounds: Bounds, *, keeps_silent: bool) -> None:
        self.history = History()
        self._rules = rules
        self._bounds = bounds
        self._keeps_silent = keeps_silent
        self._calls = Calls()
        self._replies: OrderedDict[str, Turn] = OrderedDict()
        self._newest_turn = 0
        self.is_labelled = False  # whether the listener has been told that nobody but a machine speaks

    def seed(self, earlier: tuple[HistoryItem, ...]) -> None:
        """Messages that the client brings along. Raises `TextEmpty`, `TextTooLong`, `NotPermitted`."""
        for item in earlier:
            self.history.add(item_from(item, self._bounds))

    def permit(self, *, may_instruct: bool) -> list[str]:
        """What the client may put in from now on; the ids of its instructions, which go where it may give none."""
        self._bounds = structs.replace(self._bounds, may_instruct=may_instruct)
        gone = [] if may_instruct else [item.item_id for item in self.history if item.role == "system"]
        for item_id in gone:
            self.history.delete(item_id)
        return gone

    def add_user(self, text: str, item_id: str | None = None) -> Item:
        """What the user wrote or said, at the end. The text is checked already."""
        item = Item(item_id=item_id or new_item_id(), role="user", text=text)
        self.history.add(item)
        return item

    def checked(self, text: str) -> str:
        """The text, where it can be read. Raises `TextTooLong`, `TextEmpty`."""
        return checked_text(text, self._bounds.text_bytes)

    def add(self, event: AddItem) -> ItemAdded:
        """Raises `BadMessage`, `DuplicateItem`, `UnknownItem`, `UnknownCall`, `TextEmpty`, `TextTooLong`, `NotPermitted`."""
        item = item_from(event, self._bounds)
        call_id = item.call_id or ""
        if item.kind == "result" and call_id not in self._calls and not self.history.has_open_call(call_id):
            raise UnknownCall(f"No tool call {call_id!r} of this conversation waits for a result.")
        self.history.add(item, event.after)
        if item.kind == "result" and call_id in self._calls:
            try:
                self._calls.answer(call_id)
            except UnknownCall:
                self.history.delete(item.item_id)
                raise
        return ItemAdded(ref=event.id, item_id=item.item_id, after=self.history.before(item.item_id))

    def delete(self, event: DeleteItem) -> ItemDeleted:
        """Raises `UnknownItem`."""
        self.history.delete(event.item_id)
        return ItemDeleted(ref=event.id, item_id=event.item_id)

    def retrieve(self, event: RetrieveItem) -> ItemRetrieved:
        """Raises `UnknownItem`."""
        return ItemRetrieved(ref=event.id, item=shown(self.history.find(event.item_id), self._rules))

    def truncate(self, event: TruncateItem) -> ItemTruncated:
        """Cut a reply to what was heard; a moment past its end is clamped. Raises `UnknownItem`, `NotAudio`."""
        turn = self._replies.get(event.item_id)
        audio_ms = None if turn is None else turn.truncate(event.audio_ms)
        if turn is None or audio_ms is None:
            self.history.find(event.item_id)
            raise NotAudio(f"Item {event.item_id[:80]!r} is no spoken reply of late; only its audio can be cut.")
        self.write_down(turn, turn.heard_raw_end(), is_final=False)
        return ItemTruncated(ref=event.id, item_id=event.item_id, audio_ms=audio_ms, text=turn.heard_text())

    def take_result(self, event: ToolResult) -> int:
        """Note a tool's result; the number of the turn that waits for it. Raises `UnknownCall`, `TextTooLong`."""
        output = item_from(ItemInfo(kind="result", text=event.output, call_id=event.call_id), self._bounds)
        turn = self._calls.answer(event.call_id)
        if self.history.has_open_call(event.call_id):
            self.history.add(output)
        return turn

    def context(self, given: tuple[ItemInfo, ...] | None, profile: Profile, budget: Budget, *, has_floor: bool) -> tuple[Message, ...]:
        """The prompt: of the conversation, or of the items given instead. Raises as `add`.

        A reply with the floor trims the history to the budget for good, one beside the conversation for itself.
        """
        instructions = profile.prompt(self._rules)
        if given is None:
            return self.history.messages(instructions, budget, profile.offered_tools(), trims=has_floor)
        head = (Message(role="system", text=instructions),) if instructions else ()
        return (*head, *prompt_messages(context_from(given, self.history, self._bounds)))

    def open_reply(self, turn: Turn) -> str | None:
        """A reply begins: its item stands open at the end; the id of the item in front of it."""
        if not turn.plan.has_floor:
            return None
        self._newest_turn = turn.number
        item_id = turn.plan.reply_item_id
        self.history.add(Item(item_id=item_id, role="assistant", is_open=True, is_made=turn.plan.say is None))
        self._remember(item_id, turn)
        return self.history.before(item_id)

    def continue_reply(self, turn: Turn) -> str:
        """The reply goes on behind its tools' results: its next item."""
        item_id = new_item_id()
        if turn.plan.has_floor:
            self.history.add(Item(item_id=item_id, role="assistant", is_open=True, is_made=turn.plan.say is None))
            self._remember(item_id, turn)
        return item_id

    def open_calls(self, turn: Turn, calls: tuple[ToolCall, ...]) -> tuple[SentCall, ...]:
        """The model's calls enter the conversation, behind the words before them."""
        sent = []
        for wanted in calls:
            call = self._calls.open(turn.number, wanted, [f"call_{secrets.token_hex(8)}" for _ in range(SPARE_IDS)])
            item = Item(item_id=new_item_id(), role="assistant", text=call.arguments, kind="call", call_id=call.call_id, name=call.name)
            if turn.plan.has_floor:
                self.history.add(item)
            sent.append(SentCall(call=call, item_id=item.item_id))
        if turn.plan.has_floor:
            self.write_down(turn, len(turn.raw_text()), is_final=False)
        return tuple(sent)

    def forget(self, turn: Turn, item_id: str) -> None:
        """An utterance that goes on, and the reply it got too early, leave the conversation; they come back as one."""
        for gone in (item_id, *(reply_id for reply_id, _, _ in turn.items())):
            if self.history.has(gone):
                self.history.delete(gone)

    def drop_calls(self, turn: Turn) -> None:
        """The turn is gone: its tools' results are not wanted any more."""
        self._calls.drop(turn.number)

    def write_down(self, turn: Turn, raw_end: int, *, is_final: bool) -> None:
        """Set what the turn's items came to: its raw text up to `raw_end`, less reasoning."""
        if not turn.plan.has_floor:
            return
        self.is_labelled = self.is_labelled or (bool(turn.plan.notice) and turn.is_heard)
        may_vanish = is_final and not (self._keeps_silent and turn.raw_text().strip())
        for item_id, text in self._cut(turn, raw_end):
            self.history.settle_reply(item_id, text, is_final=may_vanish)
        if turn.number == self._newest_turn and (kept := turn.kept_ids(raw_end)) is not None:
            self.history.kept = kept
        if is_final and turn.plan.say is None:
            self.history.learn(estimated_tokens(turn.plan.messages, turn.plan.tools), turn.n_read, is_too_long=turn.is_too_long)

    def as_if_ended(self, live: Iterable[Turn]) -> list[Item]:
        """The items as they would stand if all replies under way ended now: cut to what was heard, silent ones left out."""
        cut: dict[str, str] = {}
        for turn in live:
            cut.update(self._cut(turn, turn.heard_raw_end()))
        ended = [structs.replace(item, text=cut.get(item.item_id, item.text), is_open=False, n_tokens=0) for item in self.history]
        return [item for item in ended if item.kind != "message" or item.text.strip()]

    def _remember(self, item_id: str, turn: Turn) -> None:
        self._replies[item_id] = turn
        if len(self._replies) > CUTTABLE:
            self._replies.popitem(last=False)

    def _cut(self, turn: Turn, raw_end: int) -> Iterator[tuple[str, str]]:
        """The items of a turn, and what of them lies before `raw_end`, less reasoning: each is what one request has brought."""
        raw, is_model = turn.raw_text(), turn.plan.say is None
        for item_id, start, end in turn.items():
            part = raw[start : max(start, min(end, raw_end))]
            yield item_id, without_reasoning(part, starts_inside=is_model and self._rules.starts_in_reasoning)
