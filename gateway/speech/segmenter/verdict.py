"""The three answers of every sentence rule."""

from enum import Enum, auto
from typing import NamedTuple


class Answer(Enum):
    CUT = auto()
    NO = auto()
    NEED = auto()


class Verdict(NamedTuple):
    answer: Answer
    at: int = 0
    """CUT: where the segment ends. NO: where to read on."""
    likely: bool | None = False
    """NEED: a boundary unless the next character says otherwise."""


def cut(at: int) -> Verdict:
    return Verdict(Answer.CUT, at)


def no(at: int) -> Verdict:
    return Verdict(Answer.NO, at)


NEED_AFTER_STOP = Verdict(Answer.NEED, likely=None)
"""How likely is asked only when somebody wants to know."""
NEED_LIKELY = Verdict(Answer.NEED, likely=True)
NEED_UNLIKELY = Verdict(Answer.NEED)
