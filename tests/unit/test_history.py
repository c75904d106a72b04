"""The items of a conversation."""

from __future__ import annotations

import pytest

from gateway.errors import DuplicateItem, UnknownItem
from gateway.history import History, Item, estimate_tokens, without_reasoning


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


def test_an_unknown_item_is_told() -> None:
    made = history("a")
    for call in (made.delete, made.find, lambda name: made.add(Item(item_id="z", role="user", text="z"), name)):
        with pytest.raises(UnknownItem, match="nobody"):
            call("nobody")


def test_the_prompt_is_instructions_then_items() -> None:
    messages = history("Hi.", "Hello.", "How?").messages("Be brief.", 1000)
    assert [(m.role, m.text) for m in messages] == [("system", "Be brief."), ("user", "Hi."), ("assistant", "Hello."), ("user", "How?")]


def test_the_oldest_are_dropped_first_and_never_the_persona_or_the_last() -> None:
    made = history(*(f"{n} " + "word " * 30 for n in range(9)))
    messages = made.messages("Persona.", 200)
    assert messages[0].text == "Persona."
    assert messages[-1].text.startswith("8 ")
    assert 1 < len(messages) < 10
    assert len(history("word " * 5000).messages("Persona.", 100)) == 2


def test_an_open_reply_is_no_part_of_the_prompt() -> None:
    made = history("Hi.")
    made.add(Item(item_id="r", role="assistant", text="", is_open=True))
    assert len(made.messages("", 1000)) == 1
    made.settle_reply("r", "Hello.", is_final=True)
    assert made.messages("", 1000)[-1].text == "Hello."


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


def test_wide_characters_count_as_tokens() -> None:
    assert estimate_tokens("你好吗") - estimate_tokens("") == 3
    assert estimate_tokens("abcdef") - estimate_tokens("") == 2


def test_the_question_is_in_however_little_fits() -> None:
    made = History()
    made.add(Item(item_id="q", role="user", text="word " * 500))
    made.add(Item(item_id="c", role="assistant", kind="call", call_id="c", name="find", text="{}"))
    made.add(Item(item_id="r", kind="result", call_id="c", text="found " * 500))
    assert [message.role for message in made.messages("", 300)] == ["user", "assistant", "tool"]
