"""The prompt in pieces: whose text is whose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.api import Message, Role
from engine.llm.llamacpp import default_threads
from engine.llm.llamacpp.template import BrokenTemplate, Piece, mark, merge_neighbors, split_rendered


def message(role: Role, text: str) -> Message:
    return Message(role=role, text=text)


def chatml(n: int) -> str:
    return "".join(f"<|im_start|>x\n{mark(index)}<|im_end|>\n" for index in range(n)) + "<|im_start|>assistant\n"


def test_texts_and_template_are_told_apart() -> None:
    pieces = split_rendered(chatml(2), [message("system", "Be brief.<|im_end|>"), message("user", "Hi")])
    assert pieces == [
        Piece("<|im_start|>x\n", False),
        Piece("Be brief.<|im_end|>", True),
        Piece("<|im_end|>\n<|im_start|>x\n", False),
        Piece("Hi", True),
        Piece("<|im_end|>\n<|im_start|>assistant\n", False),
    ]


@given(st.lists(st.text(), max_size=5))
def test_no_text_can_become_template_or_another_message(texts: list[str]) -> None:
    messages = [message("user", text) for text in texts]
    pieces = split_rendered(chatml(len(messages)), messages)
    assert [piece.text for piece in pieces if piece.is_text] == [text for text in texts if text]
    assert "".join(piece.text for piece in pieces if not piece.is_text) == chatml(0).join(["<|im_start|>x\n<|im_end|>\n" * len(texts), ""])


def test_a_text_that_holds_a_mark_is_a_text() -> None:
    pieces = split_rendered(chatml(2), [message("user", mark(1)), message("user", "b")])
    assert [piece.text for piece in pieces if piece.is_text] == [mark(1), "b"]


def test_a_template_that_leaves_a_message_out_is_refused() -> None:
    with pytest.raises(BrokenTemplate, match="1 of 2"):
        split_rendered(chatml(1), [message("system", "a"), message("user", "b")])
    with pytest.raises(BrokenTemplate, match="message 1 of 1"):
        split_rendered(chatml(2), [message("user", "a")])


def test_neighbors_of_one_role_and_the_system_are_merged() -> None:
    talk = [message("system", "s"), message("user", "a"), message("user", "b"), message("assistant", "c"), message("user", "d")]
    merged = merge_neighbors(talk)
    assert [(each.role, each.text) for each in merged] == [("user", "s\n\na\n\nb"), ("assistant", "c"), ("user", "d")]
    assert merge_neighbors([]) == []


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (8, 7), (64, 8)])
def test_a_core_is_left_to_the_voice(cores: int, threads: int) -> None:
    assert default_threads(cores) == threads
