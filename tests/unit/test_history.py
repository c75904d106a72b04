"""The items of a conversation."""

from __future__ import annotations

from itertools import pairwise

import pytest

from engine.api import FinishReason, Message, ToolCall
from gateway.errors import DuplicateItem, UnknownItem
from gateway.events import Role
from gateway.history import Budget, History, Item, estimate_tokens, estimated_tokens, without_oldest, without_reasoning
from gateway.history.budget import n_to_leave_out
from gateway.history.past import MAX_CHARACTERS, MAX_ITEMS
from gateway.history.summary import asking, read, told


def history(*texts: str) -> History:
    made = History()
    for number, text in enumerate(texts):
        made.add(Item(item_id=f"i{number}", role="user" if number % 2 == 0 else "assistant", text=text))
    return made


def test_items_go_where_they_are_put() -> None:
    made = history("a", "b")
    made.add(Item(item_id="x", role="user", text="x"), after="i0")
    made.add(Item(item_id="y", role="system", text="y"), after="root")
    assert [item.item_id for item in made] == ["y", "i0", "x", "i1"]


def test_an_id_is_taken_once() -> None:
    with pytest.raises(DuplicateItem):
        history("a").add(Item(item_id="i0", role="user", text="b"))


def test_an_id_is_free_again_when_its_item_has_gone() -> None:
    past = history(*["a"] * (MAX_ITEMS + 1))
    assert len(past) == MAX_ITEMS
    assert not past.has("i0"), "the oldest one had to go"
    past.delete("i1")
    past.settle_reply("i2", " ", is_final=True)
    for gone in ("i0", "i1", "i2"):
        past.add(Item(item_id=gone, role="user", text="back"))
        assert past.find(gone).text == "back"


def test_a_history_that_a_client_fills_is_bounded_in_characters_and_counted_once() -> None:
    past, text = History(), "\u6d77" * 10_000
    for number in range(MAX_CHARACTERS // 10_000 + 3):
        past.add(Item(item_id=f"i{number}", text=text))
    assert sum(len(item.text) for item in past) == MAX_CHARACTERS
    assert not past.has("i2")
    assert past.has("i3")
    assert all(item.n_tokens > 10_000 for item in past), "estimated as they came"
    past.settle_reply("i5", "Short.", is_final=True)
    past.add(Item(item_id="new", text="x" * 9_000))
    assert past.has("i3"), "there is room for what was cut"
    assert len(past.messages("", Budget(tokens=3000))) == 1


def test_an_unknown_item_is_told() -> None:
    made = history("a")
    for call in (made.delete, made.find, lambda name: made.add(Item(item_id="z", role="user", text="z"), name)):
        with pytest.raises(UnknownItem, match="nobody"):
            call("nobody")


def test_the_prompt_is_instructions_then_items() -> None:
    messages = history("Hi.", "Hello.", "How?").messages("Be brief.", Budget(tokens=1000))
    assert [(m.role, m.text) for m in messages] == [("system", "Be brief."), ("user", "Hi."), ("assistant", "Hello."), ("user", "How?")]


def test_the_oldest_are_left_out_and_never_the_persona_or_the_last() -> None:
    made = history(*(f"{n} " + "word " * 30 for n in range(9)))
    messages = made.messages("Persona.", Budget(tokens=300))
    assert messages[0].text == "Persona."
    assert messages[-1].text.startswith("8 ")
    assert 1 < len(messages) < 10
    assert len(history("word " * 5000).messages("Persona.", Budget(tokens=100))) == 2


def said(made: History, number: int, role: Role = "user") -> None:
    made.add(Item(item_id=f"{role}{number}", role=role, text=f"{number} " + "word " * 30))


def test_what_stays_begins_at_the_same_place_for_many_turns() -> None:
    made, begins, lengths = History(), [], []
    for number in range(40):
        said(made, number)
        messages = made.messages("Persona.", Budget(tokens=1000, trim_to=0.5))
        begins.append(messages[1].text)
        lengths.append(sum(estimate_tokens(message.text) for message in messages))
        said(made, number, "assistant")
    moves = [number for number in range(1, 40) if begins[number] != begins[number - 1]]
    assert len(moves) >= 4, "it was trimmed"
    assert all(later - sooner >= 4 for sooner, later in pairwise(moves)), "and never at every turn"
    assert max(lengths) <= 1000
    assert all(text in {f"{n} " + "word " * 30 for n in range(40)} for text in begins), "whole messages, of the user"


def test_tools_and_instructions_count() -> None:
    made = history(*("word " * 30 for _ in range(9)))
    plenty = len(made.messages("Persona.", Budget(tokens=700), trims=False))
    tools = [{"type": "function", "function": {"name": "find", "description": "word " * 150}}]
    assert len(made.messages("Persona.", Budget(tokens=700), tools, trims=False)) < plenty
    assert len(made.messages("Persona. " * 100, Budget(tokens=700), trims=False)) < plenty
    assert len(made.messages("Persona.", Budget(tokens=700))) == plenty, "nothing was left out for good meanwhile"


def test_a_call_and_its_result_are_never_parted() -> None:
    made = History()
    for number in range(12):
        said(made, number)
        made.add(Item(item_id=f"c{number}", role="assistant", kind="call", call_id=f"c{number}", name="find", text="{}"))
        if number:  # the result of the call before this question comes only now
            made.add(Item(item_id=f"r{number}", kind="result", call_id=f"c{number - 1}", text="found " * 20))
    made.add(Item(item_id="r", kind="result", call_id="c11", text="found"))
    whole = History()
    for number in range(12):
        said(whole, number)
        whole.add(Item(item_id=f"c{number}", role="assistant", kind="call", call_id=f"c{number}", name="find", text="{}"))
        whole.add(Item(item_id=f"r{number}", kind="result", call_id=f"c{number}", text="found " * 20))
    for conversation in (made, whole):
        messages = conversation.messages("Persona.", Budget(tokens=500))
        called = [call.call_id for message in messages for call in message.tool_calls]
        assert called == [message.call_id for message in messages if message.role == "tool"]
        assert called
        assert messages[1].role == "user"


def test_a_start_between_a_call_and_its_late_result_is_passed_over() -> None:
    made = history("word " * 30, "word " * 30, "word " * 30)
    call = Item(item_id="c", role="assistant", kind="call", call_id="c", name="find", text="{}")
    result = Item(item_id="r", kind="result", call_id="c", text="found")
    late = [*made, call, Item(item_id="q", text="word " * 30), result, Item(item_id="z", text="Well?")]
    soon = [*made, call, result, Item(item_id="q", text="word " * 30), Item(item_id="z", text="Well?")]
    assert (n_to_leave_out(soon, 90), n_to_leave_out(late, 90)) == (5, 6)


def test_a_script_that_takes_more_tokens_than_estimated_is_trimmed_sooner() -> None:
    thai = "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01 " * 12
    made, budget = history(*(thai for _ in range(8))), Budget(tokens=600)
    everything = made.messages("Persona.", budget)
    assert len(everything) == 9
    made.learn(estimated_tokens(everything), 2 * estimated_tokens(everything), is_too_long=False)
    assert made.outgrown("Persona.", budget)
    assert len(made.messages("Persona.", budget)) < 6
    made.learn(100, 60, is_too_long=False)
    assert made.outgrown("Persona.", Budget(tokens=250)) == [], "an estimate on the safe side stays where it is"


def test_half_of_a_prompt_that_did_not_fit_keeps_instructions_and_question() -> None:
    call = ToolCall(call_id="c", name="find", arguments="{}")
    persona, last = Message(role="system", text="Persona."), Message(role="user", text="Well?")
    past = (
        Message(role="user", text="One"),
        Message(role="assistant", text="", tool_calls=(call,)),
        Message(role="user", text="Two"),
        Message(role="tool", text="found", call_id="c"),
    )
    assert without_oldest((persona, *past, last)) == (persona, past[2], last), "no result without its call"
    assert without_oldest((persona, last)) is None
    assert without_oldest((persona,)) is None
    assert without_oldest(()) is None


def test_the_oldest_part_is_told_before_it_is_needed() -> None:
    made = history(*("word " * 30 for _ in range(8)))
    roomy, near = Budget(tokens=2000), Budget(tokens=480)
    assert made.outgrown("Persona.", roomy) == []
    outgrown = made.outgrown("Persona.", near)
    assert [item.item_id for item in outgrown] == ["i0", "i1", "i2", "i3"]
    assert len(made.messages("Persona.", near)) == 9, "there is room for this turn still"
    assert [m.role for m in made.beginning("Persona.", outgrown)] == ["system", "user", "assistant", "user", "assistant"]
    made.leave_out(outgrown, "In short: words.")
    messages = made.messages("Persona.", near)
    assert (messages[1].role, messages[1].text) == ("user", "In short: words.\n\n" + "word " * 30)
    assert len(messages) == 5
    assert made.outgrown("Persona.", near) == []
    assert made.has("i0"), "a client may still ask for it"


def test_a_summary_stands_alone_where_the_assistant_speaks_first() -> None:
    made = History()
    made.earlier = "In short: words."
    made.add(Item(item_id="a", role="assistant", text="Hello."))
    assert [message.role for message in made.messages("Persona.", Budget(tokens=500))] == ["system", "user", "assistant"]


def test_what_a_client_deletes_does_not_live_on_in_the_summary() -> None:
    made = history("My number is 7.", "Noted.", "Hi.")
    made.leave_out(list(made)[:2], "The number is 7.")
    made.delete("i2")
    assert made.earlier
    made.delete("i0")
    assert not made.earlier


@pytest.mark.parametrize(
    ("answer", "finish", "summary"),
    [
        (" They met in Rome. ", "stop", "They met in Rome."),
        ("They met in Rome. It was ho", "length", "They met in Rome."),
        ('He said "Go." Then he lef', "length", 'He said "Go."'),
        ("他们在罗马相遇。天很", "length", "他们在罗马相遇。"),
        ("They met in Ro", "length", None),
        ("", "stop", None),
        ("They met in Rome.", "tool_calls", None),
        ("They met in Rome.", "cancelled", None),
    ],
)
def test_a_summary_ends_with_a_whole_sentence(answer: str, finish: FinishReason, summary: str | None) -> None:
    assert read(answer, finish) == summary


def test_the_summary_is_asked_for_in_the_conversations_language() -> None:
    (asked,) = asking((), "zh-CN", 160)
    assert "总结" in asked.text
    assert "96" in asked.text
    assert told("x", "zh") != told("x", "en") == told("x", "fi")


def test_an_open_reply_is_no_part_of_the_prompt() -> None:
    made = history("Hi.")
    made.add(Item(item_id="r", role="assistant", text="", is_open=True))
    assert len(made.messages("", Budget(tokens=1000))) == 1
    made.settle_reply("r", "Hello.", is_final=True)
    assert made.messages("", Budget(tokens=1000))[-1].text == "Hello."


def test_a_reply_nobody_heard_leaves_when_that_is_final() -> None:
    made = history("Hi.")
    made.add(Item(item_id="r", role="assistant", text="", is_open=True))
    made.settle_reply("r", " ", is_final=False)
    assert len(made) == 2
    made.settle_reply("r", "Hel", is_final=True)
    assert [item.text for item in made] == ["Hi.", "Hel"]


def test_settling_a_deleted_reply_does_nothing() -> None:
    made = history("Hi.")
    made.settle_reply("gone", "text", is_final=True)
    assert len(made) == 1


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("<think>hm</think>\n\nHello.", "Hello."),
        ("Hello. <think>open end", "Hello. "),
        ("<THINKING>a\nb</THINKING>Yes.", "Yes."),
        ("a < b and <b>bold</b>", "a < b and <b>bold</b>"),
    ],
)
def test_reasoning_is_not_repeated_to_the_model(raw: str, kept: str) -> None:
    assert without_reasoning(raw) == kept


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("Let me see.\n</think>\n\nHello.", "Hello."),
        ("hm</think>Hello. <think>more</think>Bye.", "Hello. Bye."),
        ("cut in the middle of a thou", ""),
        ("", ""),
    ],
)
def test_reasoning_that_the_template_has_opened_is_not_repeated_either(raw: str, kept: str) -> None:
    assert without_reasoning(raw, starts_inside=True) == kept


def test_wide_characters_count_as_tokens() -> None:
    assert estimate_tokens("你好吗") - estimate_tokens("") == 3
    assert estimate_tokens("abcdef") - estimate_tokens("") == 2


def test_the_question_is_in_however_little_fits() -> None:
    made = History()
    made.add(Item(item_id="q", role="user", text="word " * 500))
    made.add(Item(item_id="c", role="assistant", kind="call", call_id="c", name="find", text="{}"))
    made.add(Item(item_id="r", kind="result", call_id="c", text="found " * 500))
    assert [message.role for message in made.messages("", Budget(tokens=300))] == ["user", "assistant", "tool"]
